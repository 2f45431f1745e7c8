"""Which operators or networks are to be compared, over which runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.studies.numerics.named import DEEPBENCH, TOP

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.sources import Unread


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorComparisonOptions:
    """The operators that ``what`` names, each evaluated ``repeats`` times by each of ``runtimes``.

    Words are as :func:`~bricks.studies.numerics.named.operators_named` takes them. Of the zoo,
    these are the ``top`` costliest bricks by measurements of the known ``system``; None: of this
    host, or else of a published one.
    """

    runtimes: Sequence[str]
    what: Sequence[str] = (DEEPBENCH,)
    system: str | None = None
    top: int = TOP
    repeats: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkComparisonOptions:
    """The ``models``, each evaluated ``repeats`` times by each of ``runtimes``.

    ``tolerance`` is the greatest difference of a value that is no error, relative to the greatest
    magnitude in it; None: that of its type.
    """

    models: Sequence[Model | Unread]
    runtimes: Sequence[str]
    repeats: int = 3
    tolerance: float | None = None
