"""``bricks scenario``: latency under load and throughput of a served model, from its bricks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.cli.study import command_of
from bricks.errors import UsageError, suggestion
from bricks.studies.options import argument, option, shape_option, system_option, value_option
from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad, Serving
from bricks.studies.study import StudyOffer
from bricks.units.quantities import seconds_of

if TYPE_CHECKING:
    from bricks.session.workspace import Workspace
    from bricks.studies.serving.options import ScenarioOptions
    from bricks.studies.study import Study

_TEXT = "generation"

SCENARIOS: Mapping[str, str] = {
    "single-stream": "one sample at a time",
    "multi-stream": "several samples at a time",
    "server": "samples that arrive at a rate",
    "offline": "all samples at once",
}

_LOAD = "Load"

# A trace of a day at a thousand a second is no use to a simulation of minutes.
_MAX_ARRIVALS = 10_000_000


def arrivals_of(flag: str, file: Path) -> list[float]:
    """Read the times of a trace of arrivals, in seconds."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is no text"
        raise UsageError(f"{file} cannot be read ({why}): give {flag} another file") from exc
    times_s = []
    for number, line in enumerate(lines[:_MAX_ARRIVALS], start=1):
        if not line.strip():
            continue
        try:
            time_s = float(line)
        except ValueError:
            time_s = math.nan
        if not math.isfinite(time_s):
            raise UsageError(
                f"{file}: line {number} is no time in seconds, but {line.strip()[:40]!r}: give one"
                " number a line"
            )
        times_s.append(time_s)
    return times_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """The arrival of queries, and the bound of their latency."""

    scenario: str = option(
        "How queries arrive, in the terms of MLPerf.",
        default="single-stream", metavar="|".join(SCENARIOS), values=SCENARIOS,
        group=_LOAD,
    )  # fmt: skip
    qps: float | None = option(
        "Samples a second, which arrive as a Poisson process.",
        default=None, metavar="N", shown=False, group=_LOAD,
    )  # fmt: skip
    arrivals: Sequence[float] | None = option(
        "Times at which samples arrive, in seconds, one a line.",
        default=None, metavar="FILE", read=arrivals_of, written=Path,
        shown=False, group=_LOAD,
    )  # fmt: skip
    samples_per_query: int = option(
        "Samples of a query of the multi-stream scenario.",
        default=8, least=1, most=10_000, metavar="N", group=_LOAD,
    )  # fmt: skip
    slo: float | None = option(
        "Bound of the latency; finds the highest rate that keeps it.",
        default=None, metavar="50ms", read=partial(seconds_of, what="bound"),
        shown=False, group=_LOAD,
    )  # fmt: skip
    percentile: float | None = option(
        "The percentile that the bound is for.",
        default=None, metavar="P", shown="90 for single-stream, else 99", group=_LOAD,
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.scenario == _TEXT:
            raise UsageError("text that a decoder makes is 'bricks llm MODEL'")
        if self.scenario not in SCENARIOS:
            meant = suggestion(self.scenario, SCENARIOS, "give one of")
            raise UsageError(f"no scenario is called {self.scenario!r}: {meant}")

    @property
    def load(self) -> ScenarioLoad:
        """The load of a served model."""
        return ScenarioLoad(
            ScenarioKind(self.scenario), self.qps, self.arrivals, self.samples_per_query, self.slo,
            self.percentile,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOptions:
    """Shapes and values of the inputs of the model."""

    shape: list[str] | None = shape_option()
    value: list[str] | None = value_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class RealQueries:
    """Whether real queries are run next to the prediction, and how many."""

    check: bool = option(
        "Also serve the model here, and let MLPerf LoadGen ask real queries.",
        default=False,
    )  # fmt: skip
    queries: int | None = option(
        "Real queries of --check.",
        default=None, least=20, most=1_000_000, metavar="N", shown="enough for the percentile",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioCommandOptions:
    """All options of the command."""

    model: str = argument(
        "An ONNX file, the name of a zoo model, FILE.py:FUNCTION or module:FUNCTION.",
        metavar="MODEL", values="models",
    )  # fmt: skip
    load: LoadOptions = field(default_factory=LoadOptions)
    server: Serving = field(default_factory=Serving)
    checking: RealQueries = field(default_factory=RealQueries)
    system: str | None = system_option()
    inputs: InputOptions = field(default_factory=InputOptions)

    def __post_init__(self) -> None:
        """Raise :class:`UsageError` for options that make no sense together."""
        assert self.question

    @property
    def question(self) -> ScenarioOptions:
        """The options of the study of a served model."""
        from bricks.graph.input_values import parse_value
        from bricks.graph.types import parse_shape
        from bricks.studies.serving.options import ScenarioOptions

        if self.checking.queries is not None and not self.checking.check:
            raise UsageError("--queries are those of --check: add --check")
        return ScenarioOptions(
            model=self.model,
            load=self.load.load,
            serving=self.server,
            shapes=dict(map(parse_shape, self.inputs.shape or [])),
            values=dict(map(parse_value, self.inputs.value or [])),
            system=self.system,
            check=self.checking.check,
            queries=self.checking.queries,
        )


def _study() -> Callable[..., Study[Any, Any, Any, Any]]:
    from bricks.studies.serving.study import ServingStudy

    def study(
        options: ScenarioCommandOptions, workspace: Workspace, notice: Callable[[str], None]
    ) -> Study[Any, Any, Any, Any]:
        return ServingStudy(options.question, workspace, notice)

    return study


OFFER = StudyOffer(
    name="scenario",
    help="""\
    Predict a served model's latency under load, its throughput, and the rate it can keep.

    Missing bricks are measured first, for batches of several sizes; a simulated server then runs
    them. For text that a decoder makes, see 'bricks llm'. docs/guides/serving.md says what is
    assumed. Example: bricks scenario resnet50 --scenario server --qps 40 --slo 100ms --batching 4
    --threads 1
    """,
    options=ScenarioCommandOptions,
    load=_study,
    of_models=True,
)

scenario = command_of(OFFER)
