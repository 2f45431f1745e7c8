"""``bricks llm``: text that a decoder generates, from its bricks."""

from bricks.cli.study import command_of
from bricks.studies.generation import OFFER

llm = command_of(OFFER)
