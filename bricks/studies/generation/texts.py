"""The texts that a decoder is asked for: plain data. Must not know how anything is computed."""

from __future__ import annotations

from dataclasses import dataclass

from bricks.errors import UsageError

# Longer texts, or more of them at once, would be a mistake.
MAX_TOKENS, MAX_BATCH = 1 << 20, 1024


@dataclass(frozen=True, slots=True)
class Generation:
    """``batch`` texts at once: each has a prompt, and gets so many new tokens.

    ``step_s`` is what the server takes between two steps of the model: choosing the tokens, and
    binding what the next step reads and writes. With ``qps``, requests for a text each arrive as a
    Poisson process, and ``batch`` is the most that are worked on at once.
    """

    prompt_tokens: int
    new_tokens: int
    batch: int = 1
    step_s: float = 0.0
    qps: float | None = None

    def __post_init__(self) -> None:
        """Raise :class:`UsageError` for what makes no sense."""
        for option, tokens in (
            ("--prompt-tokens", self.prompt_tokens),
            ("--new-tokens", self.new_tokens),
        ):
            if not 1 <= tokens <= MAX_TOKENS:
                raise UsageError(f"{option} {tokens} makes no sense: give 1 to {MAX_TOKENS}")
        if not 1 <= self.batch <= MAX_BATCH:
            raise UsageError(f"--batch {self.batch} makes no sense: give 1 to {MAX_BATCH}")
        if self.qps is not None and self.qps <= 0:
            raise UsageError(f"--qps {self.qps:g} is no rate: give requests a second above 0")
