"""The result of predicting generated text. Plain data.

Must not know how it is computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from bricks.compose.device.collectives import collective_facts
from bricks.compose.queueing.simulation import rate
from bricks.units.facts import facts, with_ends

if TYPE_CHECKING:
    from bricks.studies.generation.options import Generation
    from bricks.studies.generation.steps import DecoderStep, StepTimes
    from bricks.system import Target
    from bricks.units.interval import Interval

_GIB = 1 << 30

# The names of percentiles in results, with the share of the requests that are faster.
PERCENTILES: Mapping[str, float] = {"p50_s": 50.0, "p90_s": 90.0, "p99_s": 99.0}


@dataclass(frozen=True, slots=True)
class GenerationMemory:
    """Bytes of weights in the form of kernels, of the KV cache at the last step, and at the peak.

    The peak has the cache twice, since a step copies it. Unknown bytes are None; ``unknown`` has
    the reasons, or names parts that the peak lacks.
    """

    weight_bytes: int | None
    cache_bytes: int | None
    peak_bytes: int | None
    unknown: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class GenerationLoad:
    """Requests that arrive at a rate, served by continuous batching.

    ``ttft`` and ``tpot`` are seconds by percentile (``p50_s``, ``p90_s``, ``p99_s``), empty above
    saturation; ``tokens_per_s`` are generated tokens a second, ``capacity_qps`` the requests a
    second at which the server saturates, ``mean_batch`` the mean number of texts of a step.
    """

    FACTS: ClassVar = (
        *(with_ends(f"{of}.{name}", f"{of}_{name}") for of in ("ttft", "tpot")
          for name in PERCENTILES),
        "tokens_per_s", "utilisation", "capacity_qps", "mean_batch", "saturated",
    )  # fmt: skip

    ttft: Mapping[str, Interval]
    tpot: Mapping[str, Interval]
    tokens_per_s: Interval
    utilisation: Interval
    capacity_qps: Interval
    mean_batch: float
    saturated: bool


@dataclass(frozen=True, slots=True)
class CheckedGeneration:
    """Latencies of text that was generated on this host; medians over ``texts`` texts.

    ``tpot_s`` is None if only one token is generated. ``steps_s`` are seconds of the model's steps
    by cache length; ``step_s`` are the seconds between two steps.
    """

    texts: int
    ttft_s: float
    tpot_s: float | None
    tokens_per_s: float
    step_s: float
    steps_s: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class DividedOver:
    """The ``cards`` that divide a decoder, and the ``network`` between several.

    ``network_origin`` is ``published`` or ``stated``; ``bandwidth`` is in bytes a second in one
    direction, ``latency_s`` that of a message if it is stated.
    """

    cards: int = 1
    network: str | None = None
    network_origin: str | None = None
    bandwidth: float | None = None
    latency_s: float | None = None


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """A decoder that generates.

    ``ttft_s`` is the time to the first token, ``tpot_s`` the mean time of each further one (None
    if there is none), ``total_s`` that of whole texts, ``tokens_per_s`` the new tokens of all texts
    of the batch. ``shown`` are steps as the cache grows. If cards divide the decoder, ``memory`` is
    that of each of ``divided``; ``fitting_cards`` are the fewest that would hold it, if these lack
    memory and so many have enough.
    """

    FACTS: ClassVar = (
        "model", ("target.system", "system"), ("target.runtime", "runtime"), "scenario",
        ("generation.prompt_tokens", "prompt_tokens"), ("generation.new_tokens", "new_tokens"),
        ("generation.batch", "batch"), ("generation.qps", "qps"),
        ("generation.step_s", "step_cost_s"), "ttft_s", "tpot_s", "total_s", "tokens_per_s",
        ("memory.weight_bytes", "weight_bytes"), ("memory.cache_bytes", "cache_bytes"),
        "needed_bytes", "decode_tokens_per_s", "graph_tokens_per_s", "limited_by",
        ("divided.cards", "tensor_parallel"), ("divided.network", "network"),
        ("divided.network_origin", "network_origin"), ("divided.bandwidth", "bandwidth"),
        ("divided.latency_s", "message_latency_s"), *collective_facts("last_step.collectives"),
        "fitting_cards", "interpolation_error", "prompt", ("shown", "steps"), "memory", "load",
        "warnings", "checked", "error",
    )  # fmt: skip
    scenario: ClassVar = "generation"
    errors: ClassVar[Sequence[str]] = ()

    model: str
    target: Target
    generation: Generation
    ttft_s: Interval
    tpot_s: Interval | None
    total_s: Interval
    tokens_per_s: Interval
    prompt: DecoderStep
    shown: Sequence[DecoderStep]
    times: StepTimes
    memory: GenerationMemory
    load: GenerationLoad | None = None
    checked: CheckedGeneration | None = None
    warnings: Sequence[str] = ()
    divided: DividedOver = DividedOver()
    fitting_cards: int | None = None

    @property
    def last_step(self) -> DecoderStep:
        """The step with the longest cache; without a further token, that of the prompt."""
        return self.shown[-1] if self.shown else self.prompt

    @property
    def decode_tokens_per_s(self) -> Interval:
        """The new tokens a second of all texts of a batch after their first ones.

        Without a further token, those of whole texts.
        """
        texts = self.generation.batch if self.generation.qps is None else 1
        if self.tpot_s is None:
            return self.tokens_per_s
        return self.tpot_s.map(lambda seconds: rate(texts, seconds))

    @property
    def limited_by(self) -> str | None:
        """The lane that limits steps of one token, or the prompt's: ``host`` or ``device``.

        None without a device.
        """
        device = self.last_step.run.device
        return None if device is None else device.limited_by

    @property
    def graph_tokens_per_s(self) -> Interval | None:
        """As :attr:`decode_tokens_per_s`, with each step launched as a CUDA graph.

        None without a device, and where there is no further token.
        """
        step_s = self.times.graph_step_s(self.generation)
        if step_s is None:
            return None
        texts = self.generation.batch if self.generation.qps is None else 1
        between_s = self.generation.step_s
        return step_s.shifted(between_s).map(lambda seconds: rate(texts, seconds))

    @property
    def needed_bytes(self) -> int | None:
        """The memory at the peak of the longest step; without that, of weights and cache."""
        memory = self.memory
        if memory.peak_bytes is not None or memory.weight_bytes is None:
            return memory.peak_bytes
        return memory.weight_bytes + (memory.cache_bytes or 0)

    @property
    def host_bytes(self) -> int | None:
        """The memory of the system, or of its card; None if it is not known."""
        if (card := self.target.system.accelerator) is not None:
            return card.memory_bytes
        facts = self.target.system.identity
        known = [facts.get(name) for name in ("memory_gib", "memory_limit_gib")]
        sizes = [float(gib) * _GIB for gib in known if gib]
        return round(min(sizes)) if sizes else None

    @property
    def fits(self) -> bool:
        """Whether the system has the memory; true where either is not known."""
        needed, there = self.needed_bytes, self.host_bytes
        return needed is None or there is None or needed <= there

    @property
    def interpolation_error(self) -> float:
        """The worst of all numbers of texts; see :class:`StepTimes`."""
        return max(map(self.times.interpolation_error, self.times.steps))


@dataclass(frozen=True, slots=True)
class GenerationFailure:
    """Texts of a ``batch`` on a ``system`` that cannot be predicted, and the ``error``."""

    LIKE: ClassVar = GenerationResult

    model: str
    system: str
    batch: int
    error: str


@dataclass(frozen=True, slots=True)
class LlmResult:
    """A decoder that generates: a row for each batch size on each system.

    ``asked`` is the model as the user named it, ``here`` the target of this host. JSON has the
    facts of the first row that is known, and those of all ``rows``.
    """

    asked: str
    here: Target
    rows: Sequence[GenerationResult | GenerationFailure]

    @property
    def known(self) -> Sequence[GenerationResult]:
        """The rows with a prediction."""
        return [row for row in self.rows if isinstance(row, GenerationResult)]

    @property
    def failed(self) -> Sequence[GenerationFailure]:
        """The rows without a prediction."""
        return [row for row in self.rows if isinstance(row, GenerationFailure)]

    @property
    def errors(self) -> Sequence[str]:
        """A line for each row without a prediction."""
        return list(dict.fromkeys(row.error for row in self.failed))

    def to_json(self) -> dict[str, Any]:
        """The facts of the first known row, and ``rows`` with those of each."""
        first = self.known[0] if self.known else self.rows[0]
        return {**facts(first), "asked": self.asked, "rows": [facts(row) for row in self.rows]}
