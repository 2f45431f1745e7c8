"""Requests to check outputs: of chained bricks against a model, of a model against a reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bricks.decompose.plan import Plan
from bricks.measure.protocol.request import Request
from bricks.samples.evaluation import Evaluation
from bricks.samples.verification import Verification


@dataclass(frozen=True, slots=True)
class VerifyModel(Request[Verification]):
    """Compare a model with its ``bricks``, by key, chained along its ``plan``.

    ``folder`` has the model's own weights.
    """

    name: str
    folder: str
    model: bytes
    plan: Plan
    bricks: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class WrittenReference:
    """The ``reason`` why a reference has no values, or None; whether it has the model's weights."""

    reason: str | None
    own_weights: bool


@dataclass(frozen=True, slots=True)
class WriteReference(Request[WrittenReference]):
    """Write the inputs, weights and outputs of a model in double precision to ``file``.

    ``folder`` has the model's own weights; with ``every``, the outputs of all nodes. Without
    ``values``, inputs and weights alone.
    """

    name: str
    folder: str
    model: bytes
    file: str
    every: bool
    values: bool = True


@dataclass(frozen=True, slots=True)
class EvaluateModel(Request[Evaluation]):
    """Run a model ``repeats`` times, and compare its outputs with the reference in ``file``.

    A program without a file is compared with itself in double precision; with ``gradients``, its
    gradients in double are compared with finite differences. ``names`` are the outputs of the ONNX
    model that a program computes. ``outputs`` is a file for the outputs of the first run. A value
    diverges from its reference beyond ``tolerance``; None: the tolerance of its type.
    """

    model: bytes
    repeats: int
    file: str | None = None
    tolerance: float | None = None
    outputs: str | None = None
    gradients: bool = False
    names: tuple[str, ...] | None = None
