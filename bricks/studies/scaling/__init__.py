"""Data-parallel training: a step on several ranks, from a rank's own bricks and a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.session.defaults import PROGRAMS_RUNTIME
from bricks.studies.scaling.options import ScalingOptions
from bricks.studies.study import StudyOffer, StudyPage

if TYPE_CHECKING:
    from bricks.studies.scaling.study import ScalingStudy


def _study() -> type[ScalingStudy]:
    from bricks.studies.scaling.study import ScalingStudy

    return ScalingStudy


def _training_steps() -> Sequence[str]:
    """The recorded training steps of the zoo."""
    from bricks.graph.call import TRAINING
    from bricks.zoo import programs

    return [program.name for program in programs() if program.kind == TRAINING]


OFFER = StudyOffer(
    name="scale",
    help="""\
    Predict a PyTorch training on several ranks, from the bricks of its step and a network.

    Missing bricks are measured first. Each rank is a host of its own, or a GPU. Without a network,
    GPUs are joined by NVLink as published, and one of 10 Gbit/s and 50 µs is assumed between hosts;
    the answer says so. Example: bricks scale train.py:step --ranks 1,8 --samples-per-epoch 50000
    --epochs 10
    """,
    options=ScalingOptions,
    load=_study,
    runtime=PROGRAMS_RUNTIME,
    threads=lambda options: None if options.check is None else 1,  # of each real rank
    needs_cache=lambda options: options.network.network is not None,
    page=StudyPage(
        path="/training",
        question="How long does training take?",
        fields={
            "workload": "Training step",
            "ranks": "Ranks",
            "samples_per_epoch": "Samples per epoch",
            "epochs": "Epochs",
            "bandwidth": "Bandwidth",
            "latency": "Message latency",
            "on": "System",
        },
        subjects=_training_steps,
    ),
)
