"""Trainings: the time of a program until an accuracy, predicted and measured, and its validation.

The time of a step is recomposed from bricks; loading data and evaluating are measured as a whole.
The number of steps is counted: measurements of bricks do not predict it. Must not render anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.session.defaults import PROGRAMS_RUNTIME
from bricks.studies.study import StudyOffer
from bricks.studies.training.options import TrainingOptions

if TYPE_CHECKING:
    from bricks.studies.training.study import TrainingStudy


def _study() -> type[TrainingStudy]:
    from bricks.studies.training.study import TrainingStudy

    return TrainingStudy


OFFER = StudyOffer(
    name="train",
    help="""\
    Predict how long a PyTorch program takes to train: a step, an epoch, and a run.

    The step is predicted from its bricks; loading a batch and evaluating are timed as a whole. Only
    --run trains, until an accuracy; an interrupted training goes on from its last epoch.
    docs/guides/training.md says what a workload returns. Example: bricks train digits_cnn --epochs
    20 --threads 1
    """,
    options=TrainingOptions,
    load=_study,
    runtime=PROGRAMS_RUNTIME,
    without=frozenset({"no_measure", "seed"}),
)
