"""How many sets of values take turns, so that a processor's branch predictor does not learn them.

Must not know which values these are.
"""

# More values than a branch predictor remembers.
_REMEMBERED = 1 << 18
_MOST_SETS = 16


def sets_in_turn(elements: int) -> int:
    """The number of different sets of so many ``elements``: at least 2, at most 16."""
    return min(_MOST_SETS, max(2, _REMEMBERED // max(1, elements)))
