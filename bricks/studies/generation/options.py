"""Options of a study of generated text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bricks.errors import UsageError
from bricks.studies.generation.texts import Generation
from bricks.studies.options import argument, option, system_option

if TYPE_CHECKING:
    from bricks.system import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOptions:
    """Texts that the decoder ``model`` makes, as ``generation`` says.

    With ``check``, texts are really generated here, which measures ``step_s`` of them.
    """

    model: str = argument(
        "An ONNX file, the name of a zoo model, FILE.py:FUNCTION or module:FUNCTION.",
        metavar="MODEL", values="models",
    )  # fmt: skip
    generation: Generation = field(default_factory=Generation)
    system: str | None = system_option()
    target: Target | None = None
    check: bool = option("Also generate texts here, and say how far off this is.", default=False)

    def __post_init__(self) -> None:
        """Raise :class:`UsageError` for texts to be generated on another host."""
        if self.check and self.system is not None:
            raise UsageError("--check generates text on this host: leave out --on")
