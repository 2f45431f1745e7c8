"""Settings in which models run: a runtime on a system, its threads, and the batch.

Must not know how a model is read or measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from bricks.graph.tensor import TensorType

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.system import Target


# Shapes of inputs as texts: ``NAME=1x3x224x224``, ``?`` for sizes that stay.
Shapes = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One way to run a model.

    ``system`` is the name of a known system, None for this host. ``threads`` and ``batch`` are None
    for the default of the runtime and of the model, as long as they are unknown. ``shapes`` are
    those of inputs as texts (``x=?x3x48x640``), empty for the model's own. ``quantize`` names the
    type of numbers that a model is converted to; None: its own. ``target`` is the system and
    runtime that the setting stands for; None where there is none.
    """

    runtime: str
    system: str | None = None
    threads: int | None = None
    shapes: Shapes = ()
    batch: int | None = None
    quantize: str | None = None
    target: Target | None = None

    def on(self, target: Target, here: Target) -> Setting:
        """This setting on ``target``, whose threads it has; ``here`` is a target of this host."""
        system = None if target.system.key == here.system.key else target.system.name
        return replace(self, target=target, system=system, threads=target.runtime.threads)

    def running(self, model: Model) -> Setting:
        """This setting with the batch of ``model``."""
        return replace(self, batch=batch_of(model))

    @property
    def copies(self) -> int:
        """Copies of the model that run at once on the host."""
        return 1 if self.target is None else self.target.runtime.copies

    @property
    def system_name(self) -> str | None:
        """The whole name of the system; None for this host without a target."""
        return self.system if self.target is None else self.target.system.name


# The dimensions of settings, in the order in which people name them.
DIMENSIONS = ("system", "runtime", "quantize", "threads", "shapes", "batch")


def varying(settings: Iterable[Setting]) -> tuple[str, ...]:
    """The dimensions in which ``settings`` differ."""
    every = list(settings)
    return tuple(name for name in DIMENSIONS if len({getattr(of, name) for of in every}) > 1)


def batch_of(model: Model) -> int:
    """The number of samples in one run: the first dimension of the first input, or 1."""
    type_ = model.inputs[0][1] if model.inputs else None
    shape = type_.shape if isinstance(type_, TensorType) else ()
    return int(shape[0]) if shape else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The values of each dimension of settings; a model is predicted in every combination.

    ``sizes`` are pairs of shapes and batch; None: every combination of ``shapes`` and ``batches``.
    """

    runtimes: Sequence[str]
    systems: Sequence[str | None] = (None,)
    threads: Sequence[int | None] = (None,)
    shapes: Sequence[Shapes] = ((),)
    batches: Sequence[int | None] = (None,)
    sizes: Sequence[tuple[Shapes, int | None]] | None = None
    quantizations: Sequence[str | None] = (None,)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Every combination once; batches change fastest, then shapes, then threads."""
        sizes = [*product(self.shapes, self.batches)] if self.sizes is None else self.sizes
        every = product(self.systems, self.runtimes, self.quantizations, self.threads, sizes)
        return tuple(
            Setting(
                system=system, runtime=runtime, quantize=quantize, threads=threads,
                shapes=shapes, batch=batch,
            )
            for system, runtime, quantize, threads, (shapes, batch) in dict.fromkeys(every)
        )  # fmt: skip
