"""The texts that a decoder is asked for: plain data. Must not know how anything is computed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from bricks.errors import UsageError
from bricks.studies.options import option
from bricks.units.quantities import seconds_of

# Longer texts, or more of them at once, would be a mistake.
MAX_TOKENS, MAX_BATCH = 1 << 20, 1024

_TITLE = "Texts"


@dataclass(frozen=True, slots=True)
class Texts:
    """``batch`` texts at once: tokens of each prompt, and tokens that are generated for each.

    ``step_s`` is what the server takes between two steps of the model: choosing the tokens, and
    binding what the next step reads and writes.
    """

    prompt_tokens: int = option("Tokens of each prompt.", default=512, metavar="N", group=_TITLE)
    new_tokens: int = option(
        "Tokens that are generated for each.", default=128, metavar="N", group=_TITLE
    )
    batch: int = option(
        "Texts at once; with --qps, the most that are worked on at once.",
        default=1, metavar="N", group=_TITLE,
    )  # fmt: skip
    step_s: float = option(
        "What the server takes between two steps.",
        default=0.0, flag="--step-cost", metavar="200us", shown="nothing",
        read=partial(seconds_of, what="cost"), group=_TITLE,
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Raise :class:`UsageError` for numbers of tokens or texts that make no sense."""
        for flag, count, most in (
            ("--prompt-tokens", self.prompt_tokens, MAX_TOKENS),
            ("--new-tokens", self.new_tokens, MAX_TOKENS),
            ("--batch", self.batch, MAX_BATCH),
        ):
            if not 1 <= count <= most:
                raise UsageError(f"{flag} {count} makes no sense: give 1 to {most}")


@dataclass(frozen=True, slots=True)
class Generation(Texts):
    """Texts as in ``Texts``, all at once or as they are requested.

    With ``qps``, requests for a text each arrive as a Poisson process, and ``batch`` is the most
    that are worked on at once.
    """

    qps: float | None = option(
        "Requests for a text a second, which arrive as a Poisson process.",
        default=None, metavar="N", shown=False,
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Raise :class:`UsageError` for what makes no sense."""
        Texts.__post_init__(self)
        if self.qps is not None and self.qps <= 0:
            raise UsageError(f"--qps {self.qps:g} is no rate: give requests a second above 0")
