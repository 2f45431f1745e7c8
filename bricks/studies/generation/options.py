"""Options of a study of generated text, and the texts that a decoder is asked for. Plain data.

Must not know how anything is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from bricks.errors import UsageError, suggestion
from bricks.studies.options import argument, option, systems_option
from bricks.units.quantities import bytes_per_s_of, seconds_of

if TYPE_CHECKING:
    from bricks.system import Target

# Longer texts, or more of them at once, would be a mistake.
MAX_TOKENS, MAX_BATCH = 1 << 20, 1024


@dataclass(frozen=True, slots=True)
class Generation:
    """``batch`` texts at once: tokens of each prompt, and tokens that are generated for each.

    ``step_s`` is what the server takes between two steps of the model: choosing the tokens, and
    binding what the next step reads and writes. With ``qps``, requests for a text each arrive as a
    Poisson process, and ``batch`` is the most that are worked on at once.
    """

    prompt_tokens: int = 512
    new_tokens: int = 128
    batch: int = 1
    step_s: float = 0.0
    qps: float | None = None

    def __post_init__(self) -> None:
        """Raise :class:`UsageError` for numbers of tokens, texts or requests that make no sense."""
        for flag, count, most in (
            ("--prompt", self.prompt_tokens, MAX_TOKENS),
            ("--new", self.new_tokens, MAX_TOKENS),
            ("--batch", self.batch, MAX_BATCH),
        ):
            if not 1 <= count <= most:
                raise UsageError(f"{flag} {count} makes no sense: give 1 to {most}")
        if self.qps is not None and self.qps <= 0:
            raise UsageError(f"--qps {self.qps:g} is no rate: give requests a second above 0")


_TITLE, _CARDS = "Texts", "GPUs"

# More cards than these divide no published architecture.
MAX_CARDS = 1024

# Bits of the weights of matrices, as ONNX Runtime's MatMulNBits has them: 32 weights share a scale.
QUANTISATIONS = {
    "none": "float32",
    "int8": "8 bits, 32 weights to a scale",
    "int4": "4 bits, 32 weights to a scale",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CardOptions:
    """GPUs that divide a published architecture, and the network between them.

    Without ``bandwidth`` in bytes a second and ``latency`` in seconds, NVLink joins them.
    """

    tensor_parallel: int = option(
        "GPUs that divide a published architecture, as Megatron-LM does.",
        default=1, metavar="N", least=1, most=MAX_CARDS, shown=False, group=_CARDS,
    )  # fmt: skip
    bandwidth: float | None = option(
        "The bandwidth between these GPUs, of each one's link.",
        default=None, metavar="400Gbit", read=bytes_per_s_of, shown="NVLink, as published",
        group=_CARDS,
    )  # fmt: skip
    latency: float | None = option(
        "The latency of a message between them.",
        default=None, metavar="5us", read=seconds_of, shown=False, group=_CARDS,
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Raise :class:`UsageError` for half a network, and for one that joins a single card."""
        stated = (self.bandwidth, self.latency)
        if stated == (None, None):
            return
        if None in stated:
            raise UsageError(
                "a network between GPUs has a bandwidth and a latency: give --bandwidth 400Gbit"
                " --latency 5us"
            )
        if self.tensor_parallel == 1:
            raise UsageError(
                "--bandwidth and --latency are of a network between GPUs: add --tensor-parallel N"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOptions:
    """Texts that the decoder ``model`` makes, as ``generation`` says.

    The matrices of a published architecture have weights of ``quantisation``, by default none. With
    ``check``, texts are really generated here, which measures ``step_s`` of them.
    """

    model: str
    quantisation: str | None = None
    generation: Generation = field(default_factory=Generation)
    cards: CardOptions = field(default_factory=CardOptions)
    system: str | None = None
    target: Target | None = None
    check: bool = False

    def __post_init__(self) -> None:
        """Raise :class:`UsageError` for texts to be generated on another host, or on cards."""
        if self.check and self.system is not None:
            raise UsageError("--check generates text on this host: leave out --on")
        if self.check and self.cards.tensor_parallel > 1:
            raise UsageError("--check generates text on this host: leave out --tensor-parallel")


def _quantisation(flag: str, name: str) -> str:
    if name not in QUANTISATIONS:
        meant = suggestion(name, QUANTISATIONS, "give one of")
        raise UsageError(f"{flag} {name}: there is no such quantisation: {meant}")
    return name


def _count(flag: str, count: int) -> int:
    return count


def _counts(flag: str, text: str) -> tuple[int, ...]:
    """Numbers with commas between them, each once."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise UsageError(f"{flag} {text}: give numbers with commas between them, such as 1,8")
    return tuple(dict.fromkeys(map(int, words)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmOptions:
    """Texts that the decoder ``model`` makes, in batches of several sizes, on several systems.

    Other fields are those of :class:`GenerationOptions` and of its :class:`Generation`.
    """

    model: str = argument(
        "A size (7B), a published architecture (llama-2-7b), an ONNX file, a zoo model,"
        " FILE.py:FUNCTION or module:FUNCTION.",
        metavar="MODEL", values="decoders",
    )  # fmt: skip
    quantisation: str | None = option(
        "Weights of the matrices of a published architecture.",
        default=None, flag="--quant", formerly="--quantize", metavar="|".join(QUANTISATIONS),
        read=_quantisation, values=QUANTISATIONS, shown="none",
    )  # fmt: skip
    prompt_tokens: int = option(
        "Tokens of each prompt.",
        default=512, flag="--prompt", formerly="--prompt-tokens", metavar="N", read=_count,
        written=int, shown="512", group=_TITLE,
    )  # fmt: skip
    new_tokens: int = option(
        "Tokens that are generated for each.",
        default=128, flag="--new", formerly="--new-tokens", metavar="N", read=_count,
        written=int, shown="128", group=_TITLE,
    )  # fmt: skip
    batch: Sequence[int] = option(
        "Texts at once, one row each; with --qps, the most that are worked on at once.",
        default=(1,), metavar="N,…", read=_counts, shown="1", group=_TITLE,
    )  # fmt: skip
    qps: float | None = option(
        "Requests for a text a second, which arrive as a Poisson process.",
        default=None, metavar="N", shown=False, group=_TITLE,
    )  # fmt: skip
    step_s: float = option(
        "What the server takes between two steps.",
        default=0.0, flag="--step-cost", metavar="200us", shown="nothing",
        read=partial(seconds_of, what="cost"), group=_TITLE,
    )  # fmt: skip
    cards: CardOptions = field(default_factory=CardOptions)
    systems: Sequence[str] | None = systems_option(
        "Known systems ('bricks systems') in place of this host, or all.", "SYSTEM,…|all"
    )
    check: bool = option("Also generate texts here, and say how far off this is.", default=False)

    def __post_init__(self) -> None:
        """Raise :class:`UsageError` for what makes no sense together."""
        assert self.questions
        if self.check and len(self.questions) > 1:
            raise UsageError("--check generates batches of one size: give one with --batch")

    @property
    def questions(self) -> Sequence[GenerationOptions]:
        """The texts of each batch size on each system."""
        return [
            GenerationOptions(
                model=self.model,
                quantisation=self.quantisation,
                generation=Generation(
                    self.prompt_tokens, self.new_tokens, size, self.step_s, self.qps
                ),
                cards=self.cards,
                system=system,
                check=self.check,
            )
            for system in self.systems or (None,)
            for size in self.batch
        ]
