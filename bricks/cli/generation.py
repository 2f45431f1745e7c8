"""``bricks llm``: text that a decoder generates, from its bricks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.cli.study import View, command_of
from bricks.studies.generation import OFFER

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bricks.studies.generation.result import GenerationResult


def _parts(result: GenerationResult) -> Sequence[RenderableType]:
    from bricks.report.generation import generation_parts

    return generation_parts(result)


llm = command_of(OFFER, View(_parts))
