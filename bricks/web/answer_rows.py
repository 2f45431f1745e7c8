"""A model's answer on one target, with its memory, as pages and their JSON have it.

Must not know how it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from bricks.analysis.answers import ESTIMATE, Answer, NoAnswer
from bricks.compose.memory.peak import PeakMemory, UnknownMemory
from bricks.errors import BricksError
from bricks.session import peak_memory
from bricks.session.workspace import Workspace
from bricks.system import Target


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """An answer, the name of its target among all, and the peak of its memory if that is known."""

    FACTS: ClassVar = (
        ("target.system.name", "system"), ("target.system.key", "system_key"),
        ("target.key", "target"), "target_name", ("target.runtime", "runtime"),
        ("target.runtime.threads", "threads"),
        *((f"answer.{path}", *names) for path, *names in ESTIMATE),
        ("answer.cost_per_million", "cost_per_million"), "peak_bytes", ("known_memory", "memory"),
        "no_memory", "error",
    )  # fmt: skip

    answer: Answer
    target_name: str
    memory: PeakMemory | UnknownMemory

    @property
    def target(self) -> Target:
        """Where the model runs."""
        return self.answer.target

    @property
    def known_memory(self) -> PeakMemory | None:
        """The memory and its parts; None where it is not known."""
        return self.memory if isinstance(self.memory, PeakMemory) else None

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that is needed at a time."""
        return None if self.known_memory is None else self.known_memory.peak_bytes

    @property
    def no_memory(self) -> str | None:
        """Why it is not known; None where it is."""
        return self.memory.reason if isinstance(self.memory, UnknownMemory) else None


@dataclass(frozen=True, slots=True)
class LackingRow:
    """Why there is no estimate on a target, and the name of the target among all."""

    LIKE: ClassVar = AnswerRow

    target: Target
    target_name: str
    error: str


def row_of(workspace: Workspace, of: Answer | NoAnswer, target_name: str) -> AnswerRow | LackingRow:
    """The row of an answer; its memory is predicted."""
    if isinstance(of, NoAnswer):
        return LackingRow(of.target, target_name, of.reason)
    try:
        memory = peak_memory.memory_of_plan(workspace, of.plan, target=of.target)
    except BricksError as error:
        memory = UnknownMemory(of.plan.model, str(error))
    return AnswerRow(of, target_name, memory)


def fastest_first(row: AnswerRow | LackingRow) -> tuple[Any, ...]:
    """The order: the fastest first, those without an answer last."""
    estimate_s = row.answer.estimate.estimate_s if isinstance(row, AnswerRow) else 0.0
    target = row.target
    lacks = isinstance(row, LackingRow)
    return lacks, estimate_s, target.system.name, target.runtime.threads, target.key
