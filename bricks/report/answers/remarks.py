"""Remarks below an answer's table: at most two, each once; ``--all`` shows the others."""

from __future__ import annotations

from collections.abc import Sequence

MOST = 2


def fewest(remarks: Sequence[str], *, every: bool) -> list[str]:
    """The remarks that are shown: all with ``every``, else the first few, each once.

    The order of ``remarks`` is that of their weight. The last line shown names how many are left.
    """
    unique = list(dict.fromkeys(remarks))
    if every or len(unique) <= MOST:
        return unique
    rest = len(unique) - MOST + 1
    return [*unique[: MOST - 1], f"{rest} more remarks: add --all."]
