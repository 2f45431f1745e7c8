"""What a study of generated text is asked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from bricks.errors import UsageError
from bricks.studies.generation.texts import Generation
from bricks.studies.options import argument, option, system_option
from bricks.units.quantities import seconds_of

if TYPE_CHECKING:
    from bricks.system import Target

PROMPT_TOKENS, NEW_TOKENS = 512, 128


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOptions:
    """Texts that the decoder ``model`` makes; see :class:`Generation`.

    With ``check``, texts are really generated here, which tells ``step_s``.
    """

    model: str = argument(
        "An ONNX file, the name of a zoo model, FILE.py:FUNCTION or module:FUNCTION.",
        metavar="MODEL", values="models",
    )  # fmt: skip
    prompt_tokens: int = option("Tokens of each prompt.", default=PROMPT_TOKENS, metavar="N")
    new_tokens: int = option("Tokens that are generated for each.", default=NEW_TOKENS, metavar="N")
    batch: int = option(
        "Texts at once; with --qps, the most that are worked on at once.",
        default=1, flag="--batch", metavar="N",
    )  # fmt: skip
    qps: float | None = option(
        "Requests for a text a second, which arrive as a Poisson process.",
        default=None, flag="--qps", metavar="N", shown=False,
    )  # fmt: skip
    step_s: float | None = option(
        "What the server takes between two steps.",
        default=None, flag="--step-cost", metavar="200us", shown="nothing",
        read=partial(seconds_of, what="cost"),
    )  # fmt: skip
    system: str | None = system_option()
    target: Target | None = None
    check: bool = option(
        "Also generate texts here, and say how far off this is.", default=False, flag="--check"
    )

    def __post_init__(self) -> None:
        if self.check and self.system is not None:
            raise UsageError("--check generates text on this host: leave out --system")
        assert self.generation  # refuses what makes no sense

    @property
    def generation(self) -> Generation:
        """The texts that are asked for."""
        return Generation(
            self.prompt_tokens, self.new_tokens, self.batch, self.step_s or 0.0, self.qps
        )
