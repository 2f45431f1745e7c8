"""Finds stretches of calls by a regular expression of their operators."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bricks.backends.torch.cuda_calls.issued import IssuedCall


def stretches(pattern: str, calls: Sequence[IssuedCall]) -> Iterator[range]:
    """Yield the positions of calls whose operators match, each followed by a space, in order."""
    words = [f"{call.operator} " for call in calls]
    begins = [0, *accumulate(map(len, words))]
    for match in re.finditer(rf"(?<![^ ])(?:{pattern})", "".join(words)):
        if match.group():
            yield range(bisect_left(begins, match.start()), bisect_left(begins, match.end()))
