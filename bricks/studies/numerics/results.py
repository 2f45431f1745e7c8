"""Results of comparing operators and networks over runtimes. Plain data.

Must not know how they are measured, nor how they are shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from bricks.samples.evaluation import GRADIENT_TOLERANCE
from bricks.units.facts import Missing, facts

if TYPE_CHECKING:
    from bricks.samples.evaluation import (
        ComparedOutput,
        DirectionalDerivative,
        Divergence,
        Evaluation,
    )
    from bricks.session.machine_peaks import Peaks
    from bricks.system import Runtime, System, Target
    from bricks.units.interval import Interval

_NO_OUTPUT = "the reference has no such output"


@dataclass(frozen=True, slots=True)
class Gradients:
    """The gradients of a program, in the order of its backward pass."""

    FACTS: ClassVar = (
        "tolerance", "max_relative_error", ("first_wrong.of", "first_wrong"), "checked",
    )  # fmt: skip

    checked: tuple[DirectionalDerivative, ...]

    @property
    def first_wrong(self) -> DirectionalDerivative | None:
        """The first wrong gradient, which may cause the errors of all later ones."""
        return next((check for check in self.checked if check.wrong), None)

    @property
    def tolerance(self) -> float:
        """The greatest relative error of a right gradient."""
        return GRADIENT_TOLERANCE

    @property
    def max_relative_error(self) -> float:
        """The greatest relative error of all gradients."""
        return max((check.relative_error for check in self.checked), default=0.0)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A runtime's ``evaluation`` of a model, compared with ``reference``.

    ``reference`` names the reference, or says why there is none; so does ``gradients``.
    """

    FACTS: ClassVar = (
        "reference", ("reference.reason", "reason"), ("evaluation.outputs", "outputs"),
        ("evaluation.repeats", "repeats"), ("evaluation.distinct", "distinct"),
        ("evaluation.max_variance", "max_variance"), "gradients",
        ("gradients.reason", "gradients_reason"),
    )  # fmt: skip

    evaluation: Evaluation
    reference: str | Missing
    gradients: Gradients | Missing

    @classmethod
    def of(
        cls, evaluation: Evaluation, reference: str | Missing, gradients: Gradients | Missing
    ) -> Accuracy:
        """The accuracy in ``evaluation``; each output without norms gets a reason."""
        lacking = reference.reason if isinstance(reference, Missing) else _NO_OUTPUT
        outputs = tuple(
            replace(output, reason=output.reason or lacking) if output.norms is None else output
            for output in evaluation.outputs
        )
        return cls(replace(evaluation, outputs=outputs), reference, gradients)

    @property
    def worst(self) -> ComparedOutput | None:
        """The output with the greatest relative L2 error; None where no output has norms."""
        known = [output for output in self.evaluation.outputs if output.norms is not None]
        return max(known, key=_relative_l2, default=None)


def _relative_l2(output: ComparedOutput) -> float:
    norms = output.norms
    assert norms is not None
    return norms.l2 if norms.l2_relative is None else norms.l2_relative


@dataclass(frozen=True, slots=True)
class Work:
    """An operator's work: floating-point operations, and bytes read and written, each once.

    None where it is not known.
    """

    flops: int | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class OperatorLatency:
    """An operator's latency with its interval, and the rates that it reaches without the call.

    ``peak_share`` is the latency at the roofline over its own, ``bound`` the lower roof,
    ``compute`` or ``memory``; None where work or peaks are not known.
    """

    latency_s: Interval
    flops_per_s: float | None
    bytes_per_s: float | None
    peak_share: float | None
    bound: str | None


class Form(Enum):
    """The form of an operator that a runtime ran.

    The given form; equivalent standard ONNX operators in the plain layout; or PyTorch's
    counterparts of these.
    """

    GIVEN = "given"
    STANDARD = "standard"
    COUNTERPART = "counterpart"


@dataclass(frozen=True, slots=True)
class OperatorRun:
    """An operator with one runtime, in one ``form``."""

    FACTS: ClassVar = (
        "runtime", "form", ("latency.latency_s", "latency_s", "low_s", "high_s"),
        ("latency.flops_per_s", "flops_per_s"), ("latency.bytes_per_s", "bytes_per_s"),
        ("latency.peak_share", "peak_share"), ("latency.bound", "bound"), "accuracy",
        ("accuracy.reason", "accuracy_error"), ("latency.reason", "error"),
    )  # fmt: skip

    runtime: str
    latency: OperatorLatency | Missing
    accuracy: Accuracy | Missing
    form: Form = Form.GIVEN

    @property
    def ran(self) -> bool:
        """Whether the run has a latency or an accuracy."""
        return not (isinstance(self.latency, Missing) and isinstance(self.accuracy, Missing))


@dataclass(frozen=True, slots=True)
class OperatorResult:
    """An operator over runtimes."""

    FACTS: ClassVar = (
        ("name", "operator"), "source", ("work.flops", "flops"), ("work.bytes", "bytes"),
        ("runs", "runtimes"),
    )  # fmt: skip

    name: str
    source: str
    work: Work
    runs: tuple[OperatorRun, ...]


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """A compared runtime and its peaks."""

    target: Target
    peaks: Peaks

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {**self.target.runtime.to_json(), "peaks": facts(self.peaks)}


@dataclass(frozen=True, slots=True)
class MissingRuntime:
    """A requested runtime that is not installed, and the reason."""

    runtime: str
    reason: str


@dataclass(frozen=True, slots=True)
class OperatorComparison:
    """Operators over runtimes, on one ``system``.

    ``missing`` are runtimes that are left out, ``unread`` a line for each operator that cannot be
    had.
    """

    FACTS: ClassVar = ("system", "missing", "runtimes", "operators")

    system: System
    runtimes: tuple[RuntimeFacts, ...]
    operators: tuple[OperatorResult, ...]
    missing: tuple[MissingRuntime, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[str, ...]:
        """A line for each operator that cannot be had, and one where nothing ran."""
        runs = [run for operator in self.operators for run in operator.runs]
        if not runs or any(run.ran for run in runs):
            return self.unread
        first = runs[0].latency
        assert isinstance(first, Missing), "it did not run"
        return (*self.unread, f"nothing ran: {first.reason}")


@dataclass(frozen=True, slots=True)
class NetworkRun:
    """A network with one runtime."""

    FACTS: ClassVar = (
        "runtime", "accuracy", ("divergence", "parting"),
        ("divergence.reason", "parting_reason"),
        ("accuracy.reason", "error"),
    )  # fmt: skip

    runtime: str
    accuracy: Accuracy | Missing
    divergence: Divergence | Missing


@dataclass(frozen=True, slots=True)
class Pair:
    """The outputs of two runtimes compared; norms are relative to outputs of ``one``."""

    one: str
    other: str
    outputs: tuple[ComparedOutput, ...]


@dataclass(frozen=True, slots=True)
class NetworkResult:
    """A network over runtimes, and each pair of runtimes compared.

    ``own_weights`` is whether the network has its own weights; None if no runtime ran it.
    """

    FACTS: ClassVar = (("name", "model"), "kind", "own_weights", ("runs", "runtimes"), "pairs")

    name: str
    kind: str
    own_weights: bool | None
    runs: tuple[NetworkRun, ...]
    pairs: tuple[Pair, ...]

    @property
    def errors(self) -> tuple[str, ...]:
        """A line where no runtime ran it."""
        reasons = [run.accuracy.reason for run in self.runs if isinstance(run.accuracy, Missing)]
        if len(reasons) < len(self.runs):
            return ()
        return (f"{self.name}: nothing ran: {reasons[0]}",)


@dataclass(frozen=True, slots=True)
class NetworkComparison:
    """Networks over ``runtimes``, on one ``system``.

    ``missing`` are runtimes that are left out, ``unread`` a line for each model that cannot be
    read.
    """

    FACTS: ClassVar = ("system", "missing", "runtimes", ("networks", "models"))

    system: System
    runtimes: tuple[Runtime, ...]
    networks: tuple[NetworkResult, ...]
    missing: tuple[MissingRuntime, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[str, ...]:
        """A line for each model that cannot be read, and for each that nothing ran."""
        return (*self.unread, *(line for network in self.networks for line in network.errors))
