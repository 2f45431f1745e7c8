"""The texts that a decoder is asked for: plain data. Must not know how anything is computed."""

from __future__ import annotations

from dataclasses import dataclass

from bricks.errors import UsageError

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
