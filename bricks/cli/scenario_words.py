"""What ``bricks scenario`` is asked, as it is written: a load, a server, or texts.

Must not know how it is answered.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.errors import UsageError, suggestion
from bricks.studies.options import (
    argument,
    option,
    option_of,
    shape_option,
    system_option,
    value_option,
)
from bricks.units.quantities import seconds_of

if TYPE_CHECKING:
    from bricks.studies.generation.options import GenerationOptions
    from bricks.studies.serving.options import ScenarioOptions
    from bricks.studies.serving.scenario import ScenarioLoad, Serving

GENERATION = "generation"

SCENARIOS: Mapping[str, str] = {
    "single-stream": "one sample at a time",
    "multi-stream": "several samples at a time",
    "server": "samples that arrive at a rate",
    "offline": "all samples at once",
    GENERATION: "texts that a decoder makes token by token",
}

_LOAD, _SERVER, _TEXT = "Load", "Server", "Generation of text"

_DURATION = partial(seconds_of, what="cost")

# A trace of a day at a thousand a second is no use to a simulation of minutes.
_MAX_ARRIVALS = 10_000_000


def arrivals_of(flag: str, file: Path) -> list[float]:
    """The times in a trace of arrivals, in seconds."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is no text"
        raise UsageError(f"{file} cannot be read ({why}): give {flag} another file") from exc
    found = []
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
        found.append(time_s)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadWords:
    """How queries come."""

    scenario: str = option(
        "How queries arrive, in the terms of MLPerf.",
        default="single-stream", flag="--scenario", metavar="|".join(SCENARIOS), values=SCENARIOS,
        group=_LOAD,
    )  # fmt: skip
    qps: float | None = option(
        "Samples a second, which arrive as a Poisson process.",
        default=None, flag="--qps", metavar="N", shown=False, group=_LOAD,
    )  # fmt: skip
    arrivals: Sequence[float] | None = option(
        "Times at which samples arrive, in seconds, one a line.",
        default=None, flag="--arrivals", metavar="FILE", read=arrivals_of, written=Path,
        shown=False, group=_LOAD,
    )  # fmt: skip
    samples_per_query: int = option(
        "Samples of a query of the multi-stream scenario.",
        default=8, least=1, most=10_000, metavar="N", group=_LOAD,
    )  # fmt: skip
    slo: float | None = option(
        "Bound of the latency; finds the highest rate that keeps it.",
        default=None, flag="--slo", metavar="50ms", read=partial(seconds_of, what="bound"),
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
        from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad

        return ScenarioLoad(
            ScenarioKind(self.scenario), self.qps, self.arrivals, self.samples_per_query, self.slo,
            self.percentile,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerWords:
    """How samples are served."""

    batching: int = option(
        "Largest batch that waiting samples are joined to.",
        default=1, metavar="N", group=_SERVER,
    )  # fmt: skip
    batch_timeout: float | None = option(
        "How long a sample waits for others to fill a batch.",
        default=None, metavar="2ms", read=partial(seconds_of, what="time to wait"),
        shown="not at all", group=_SERVER,
    )  # fmt: skip
    instances: int = option(
        "Instances of the model, each with --threads.",
        default=1, least=1, most=1024, metavar="N", group=_SERVER,
    )  # fmt: skip
    max_queue: int | None = option(
        "Samples that may wait; others are dropped.",
        default=None, least=1, metavar="N", shown="no bound", group=_SERVER,
    )  # fmt: skip
    request_cost: float | None = option(
        "What a sample costs the server besides the model.",
        default=None, metavar="50us", read=_DURATION, shown="nothing", group=_SERVER,
    )  # fmt: skip
    batch_cost: float | None = option(
        "What a batch costs the server besides the model.",
        default=None, metavar="100us", read=_DURATION, shown="nothing", group=_SERVER,
    )  # fmt: skip
    transport: float | None = option(
        "How long a query and its answer are on the way.",
        default=None, metavar="200us", read=partial(seconds_of, what="time on the way"),
        shown="no time", group=_SERVER,
    )  # fmt: skip

    @property
    def serving(self) -> Serving:
        """The server."""
        from bricks.studies.serving.scenario import Serving

        return Serving(
            self.batching, self.batch_timeout or 0.0, self.instances, self.max_queue,
            self.request_cost or 0.0, self.batch_cost or 0.0, self.transport or 0.0,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWords:
    """What a decoder makes."""

    prompt_tokens: int | None = option(
        "Tokens of each prompt.", default=None, metavar="N", shown="512", group=_TEXT
    )
    new_tokens: int | None = option(
        "Tokens that are generated for each.", default=None, metavar="N", shown="128", group=_TEXT
    )
    batch: int | None = option(
        "Texts at once; with --qps, the most that are worked on at once.",
        default=None, flag="--batch", metavar="N", shown="1", group=_TEXT,
    )  # fmt: skip
    step_cost: float | None = option(
        "What the server takes between two steps.",
        default=None, metavar="200us", read=_DURATION, shown="nothing", group=_TEXT,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class InputWords:
    """What inputs of the model are."""

    shape: list[str] | None = shape_option()
    value: list[str] | None = value_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckWords:
    """How the real thing is run beside."""

    check: bool = option(
        "Also serve the model here, and let MLPerf LoadGen ask real queries; or generate texts.",
        default=False, flag="--check",
    )  # fmt: skip
    queries: int | None = option(
        "Real queries of --check.",
        default=None, least=20, most=1_000_000, metavar="N", shown="enough for the percentile",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioWords:
    """All that is written; what makes no sense together is refused."""

    model: str = argument(
        "An ONNX file, the name of a zoo model, FILE.py:FUNCTION or module:FUNCTION.",
        metavar="MODEL", values="models",
    )  # fmt: skip
    load: LoadWords = field(default_factory=LoadWords)
    server: ServerWords = field(default_factory=ServerWords)
    text: TextWords = field(default_factory=TextWords)
    checking: CheckWords = field(default_factory=CheckWords)
    system: str | None = system_option()
    inputs: InputWords = field(default_factory=InputWords)

    def __post_init__(self) -> None:
        assert self.asked  # refuses what makes no sense

    @property
    def asked(self) -> ScenarioOptions | GenerationOptions:
        """The options of the study that answers."""
        return self._generation if self.load.scenario == GENERATION else self._served

    @property
    def _generation(self) -> GenerationOptions:
        from bricks.studies.generation.options import (
            NEW_TOKENS,
            PROMPT_TOKENS,
            GenerationOptions,
        )

        _refuse(GENERATION, self.load, keep=("scenario", "qps", "samples_per_query"))
        for words in (self.server, self.inputs):
            _refuse(GENERATION, words)
        _refuse(GENERATION, self.checking, keep=("check",))
        text = self.text
        return GenerationOptions(
            model=self.model,
            prompt_tokens=PROMPT_TOKENS if text.prompt_tokens is None else text.prompt_tokens,
            new_tokens=NEW_TOKENS if text.new_tokens is None else text.new_tokens,
            batch=1 if text.batch is None else text.batch,
            qps=self.load.qps,
            step_s=text.step_cost,
            system=self.system,
            check=self.checking.check,
        )

    @property
    def _served(self) -> ScenarioOptions:
        from bricks.graph.input_values import parse_value
        from bricks.graph.sizes import parse_shape
        from bricks.studies.serving.options import ScenarioOptions

        _refuse(self.load.scenario, self.text)
        if self.checking.queries is not None and not self.checking.check:
            raise UsageError("--queries are those of --check: add --check")
        return ScenarioOptions(
            model=self.model,
            load=self.load.load,
            serving=self.server.serving,
            shapes=dict(map(parse_shape, self.inputs.shape or [])),
            values=dict(map(parse_value, self.inputs.value or [])),
            system=self.system,
            check=self.checking.check,
            queries=self.checking.queries,
        )


def _refuse(scenario: str, words: Any, *, keep: Sequence[str] = ()) -> None:
    """:class:`UsageError` for an option that is given and is not for this ``scenario``."""
    for flag in _given(words, keep):
        raise UsageError(f"{flag} is not for scenario {scenario}: leave it out")


def _given(words: Any, keep: Sequence[str]) -> Iterator[str]:
    for each in fields(words):
        if each.name not in keep and getattr(words, each.name) != each.default:
            described = option_of(each)
            flag = None if described is None else described.flag
            yield flag or f"--{each.name.replace('_', '-')}"
