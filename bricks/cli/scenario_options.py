"""Options of ``bricks scenario``: a load on a server, or texts that a decoder makes.

Must not know how they are answered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.cli.command import typed_options
from bricks.errors import UsageError, suggestion
from bricks.studies.generation.options import GenerationOptions
from bricks.studies.generation.texts import Generation, Texts
from bricks.studies.options import argument, option, shape_option, system_option, value_option
from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad, Serving
from bricks.units.quantities import seconds_of

if TYPE_CHECKING:
    from bricks.studies.serving.options import ScenarioOptions

GENERATION = "generation"

SCENARIOS: Mapping[str, str] = {
    "single-stream": "one sample at a time",
    "multi-stream": "several samples at a time",
    "server": "samples that arrive at a rate",
    "offline": "all samples at once",
    GENERATION: "texts that a decoder makes token by token",
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
        "Also serve the model here, and let MLPerf LoadGen ask real queries; or generate texts.",
        default=False,
    )  # fmt: skip
    queries: int | None = option(
        "Real queries of --check.",
        default=None, least=20, most=1_000_000, metavar="N", shown="enough for the percentile",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioCommandOptions:
    """All options of the command; those that do not belong to the scenario are refused."""

    model: str = argument(
        "An ONNX file, the name of a zoo model, FILE.py:FUNCTION or module:FUNCTION.",
        metavar="MODEL", values="models",
    )  # fmt: skip
    load: LoadOptions = field(default_factory=LoadOptions)
    server: Serving = field(default_factory=Serving)
    texts: Texts = field(default_factory=Texts)
    checking: RealQueries = field(default_factory=RealQueries)
    system: str | None = system_option()
    inputs: InputOptions = field(default_factory=InputOptions)

    def __post_init__(self) -> None:
        """Raise :class:`UsageError` for options that make no sense together."""
        assert self.question

    @property
    def question(self) -> ScenarioOptions | GenerationOptions:
        """The options of the study that answers: of a served model, or of generated text."""
        return self._generation if self.load.scenario == GENERATION else self._served

    @property
    def _generation(self) -> GenerationOptions:
        """Options of generated text; options of a served model are refused."""
        _refuse(GENERATION, self.load, keep=("scenario", "qps", "samples-per-query"))
        for options in (self.server, self.inputs):
            _refuse(GENERATION, options)
        _refuse(GENERATION, self.checking, keep=("check",))
        return GenerationOptions(
            model=self.model,
            generation=Generation(**asdict(self.texts), qps=self.load.qps),
            system=self.system,
            check=self.checking.check,
        )

    @property
    def _served(self) -> ScenarioOptions:
        """Options of a served model; options of generated text are refused."""
        from bricks.graph.input_values import parse_value
        from bricks.graph.sizes import parse_shape
        from bricks.studies.serving.options import ScenarioOptions

        _refuse(self.load.scenario, self.texts)
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


def _refuse(scenario: str, options: Any, *, keep: Sequence[str] = ()) -> None:
    """Raise :class:`UsageError` for an option that is typed and not in ``keep``."""
    for typed in typed_options(options):
        if typed.name not in keep and typed.words:
            raise UsageError(f"--{typed.name} is not for scenario {scenario}: leave it out")
