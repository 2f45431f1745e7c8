"""Options of a study of trainings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bricks.errors import UsageError
from bricks.studies.options import argument, batch_option, option

FOLDER = Path("cache/training")

MAX_EPOCHS = 50

_GOAL = re.compile(r"accuracy=(\d+(?:\.\d*)?|\.\d+)")


def accuracy_of(flag: str, text: str) -> float:
    """An accuracy such as ``accuracy=0.95``."""
    match = _GOAL.fullmatch(text.strip())
    value = float(match[1]) if match else 0.0
    if not 0 < value <= 1:
        raise UsageError(f"{flag} {text!r} is no goal: write it like accuracy=0.95")
    return value


def seeds_until(flag: str, count: int) -> Sequence[int]:
    """So many seeds, from 0 on."""
    return range(count)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """How long ``workload`` takes to train: a step, an epoch, and a run of ``epochs``.

    ``workload`` is ``FILE.py:FUNCTION``, ``module:FUNCTION``, or the name of a workload or training
    step of the zoo (docs/guides/training.md says what the function returns); ``batch`` is passed on
    to it. An epoch has ``samples_per_epoch``; None: those of the program's own data. With ``run``,
    it is trained from each of ``seeds`` until an accuracy of ``until``, from 0 to 1. The
    accuracy is computed after each epoch, and after ``max_epochs`` a training ends. Epochs are
    kept in ``folder``, so that an interrupted training goes on and a finished one is not repeated,
    unless ``again``. With ``validate``, what the training relies on is checked first.

    Raises :class:`~bricks.errors.UsageError` for a goal or seeds that make no sense.
    """

    workload: str = argument(
        "FILE.py:FUNCTION, module:FUNCTION, or a workload or training step of the zoo.",
        metavar="WORKLOAD", values="trainable",
    )  # fmt: skip
    samples_per_epoch: int | None = option(
        "Samples of an epoch.",
        default=None, metavar="N", least=1, shown="those of the program's data",
    )  # fmt: skip
    epochs: int | None = option(
        "Epochs of a run, to tell how long it takes.",
        default=None, metavar="N", least=1, shown=False,
    )  # fmt: skip
    run: bool = option(
        "Also train until it is accurate, and set measured times next to predicted ones.",
        default=False,
    )  # fmt: skip
    until: float = option(
        "When a training of --run ends, computed after each epoch.",
        default=0.95, metavar="accuracy=A", read=accuracy_of, shown="accuracy=0.95",
    )  # fmt: skip
    seeds: Sequence[int] = option(
        "Train from so many seeds, from 0 on.",
        default=(0,), metavar="N", least=1, most=1000, read=seeds_until, written=int, shown="1",
    )  # fmt: skip
    max_epochs: int = option(
        "End a training that is not accurate by then.", default=MAX_EPOCHS, metavar="N", least=1
    )
    validate: bool = option(
        "First check gradients, the optimiser and the sampler, against differences, definitions"
        " and chance.",
        default=False,
    )  # fmt: skip
    folder: str | Path = option(
        "Where checkpoints and finished trainings are kept.",
        default=FOLDER, metavar="FOLDER", written=Path, shown=str(FOLDER),
    )  # fmt: skip
    again: bool = option("Train anew what is kept, and time loading anew.", default=False)
    batch: int | None = batch_option()

    def __post_init__(self) -> None:
        if not 0 < self.until <= 1:
            raise UsageError(
                f"an accuracy of {self.until:g} cannot be reached: give one from 0 to 1"
            )
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise UsageError("seeds must be different numbers from 0 on: give at least one")
        if self.max_epochs < 1:
            raise UsageError(f"{self.max_epochs} epochs are no training: give at least 1")
        if not self.run and (list(self.seeds) != [0] or self.max_epochs != MAX_EPOCHS):
            raise UsageError("--seeds and --max-epochs are those of a training: add --run")
