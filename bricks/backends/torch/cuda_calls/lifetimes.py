"""When the memory of a rewritten program's values is freed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bricks.backends.torch.cuda_calls.listing import CallListing


def settle(listing: CallListing) -> None:
    """Free each storage as a whole, after all calls that read it.

    A storage is freed where the recording frees the last of its values, or later if a call reads it
    later; values that only CUDA has are freed after the last call that reads them. A storage stays
    if it has a result of the step, or if the recording never frees it.
    """
    freed, last, roots = _freed(listing), _last_uses(listing), listing.roots()
    values: dict[str, list[str]] = defaultdict(list)
    for name, root in roots.items():
        values[root].append(name)
    by_call: dict[int, list[str]] = defaultdict(list)
    for root, names in values.items():
        ends = [freed[name] for name in names if name in freed]
        is_new = all(map(listing.is_new, names))
        if root in roots and (ends or is_new) and not listing.results.intersection(names):
            by_call[max(*ends, *(last[name] for name in names), 0)] += names
    listing.calls = [
        replace(call, freed=tuple(by_call.get(at, ()))) for at, call in enumerate(listing.calls)
    ]


def _freed(listing: CallListing) -> Mapping[str, int]:
    return {name: at for at, call in enumerate(listing.calls) for name in call.freed}


def _last_uses(listing: CallListing) -> Mapping[str, int]:
    uses: dict[str, int] = {}
    for at, call in enumerate(listing.calls):
        for name in (*call.outputs, *(operand.value for operand in call.operands)):
            uses[name] = at
    return uses
