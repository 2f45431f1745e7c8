"""Three folds of the programs: constants that a program is predicted with are fitted on the others.

A program on another card, or with another batch, belongs to the same fold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

FOLDS = 3
# Sizes in the names of programs.
_SIZES = re.compile(r"_(?:b\d+(?:_\d+)*)(?=_|$)")


def family_of(program: str) -> str:
    """The program's name without its batch: ``lm1b_decode`` of ``lm1b_decode_b16_512``."""
    return _SIZES.sub("", program)


def folds_of(programs: Iterable[str]) -> Mapping[str, int]:
    """The fold of each program; families go round in the order of their names."""
    names = sorted(set(programs))
    families = sorted(set(map(family_of, names)))
    return {name: families.index(family_of(name)) % FOLDS for name in names}
