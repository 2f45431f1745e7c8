"""Options of studies that compare operators or networks over runtimes."""

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

    Words are arguments of :func:`~bricks.studies.numerics.named.operators_named`. The zoo's list
    has the ``top`` costliest bricks by measurements of the known ``system``; None: of this host, or
    of a published system.
    """

    runtimes: Sequence[str]
    what: Sequence[str] = (DEEPBENCH,)
    system: str | None = None
    top: int = TOP
    repeats: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkComparisonOptions:
    """The ``models``, each evaluated ``repeats`` times by each of ``runtimes``.

    ``tolerance`` is the greatest difference of a value that is no error, relative to its greatest
    magnitude; None: the tolerance of its type.
    """

    models: Sequence[Model | Unread]
    runtimes: Sequence[str]
    repeats: int = 3
    tolerance: float | None = None
