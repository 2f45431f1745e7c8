"""Rows of a model's answers by target, with peak memory, for pages and their JSON.

Must not know how it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from bricks.analysis.answers import ESTIMATE, Answer, NoAnswer
from bricks.compose.memory.peak import PeakMemory, UnknownMemory
from bricks.errors import BricksError
from bricks.session import peak_memory

if TYPE_CHECKING:
    from bricks.session.workspace import Workspace
    from bricks.system import Target
    from bricks.units.interval import Interval

# Whether a latency meets a bound: it does not if even the lower end of its interval is longer.
YES, NO, UNCERTAIN = "yes", "no", "uncertain"


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """An answer, the unique name of its target, and its peak memory if that is known."""

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
        """The target that the model runs on."""
        return self.answer.target

    @property
    def known_memory(self) -> PeakMemory | None:
        """The peak memory and its parts; None if unknown."""
        return self.memory if isinstance(self.memory, PeakMemory) else None

    @property
    def peak_bytes(self) -> int | None:
        """The peak memory in bytes; None if unknown."""
        return None if self.known_memory is None else self.known_memory.peak_bytes

    @property
    def no_memory(self) -> str | None:
        """The reason why the peak memory is unknown; None if it is known."""
        return self.memory.reason if isinstance(self.memory, UnknownMemory) else None


@dataclass(frozen=True, slots=True)
class LackingRow:
    """The reason why there is no estimate on a target, and the unique name of the target."""

    LIKE: ClassVar = AnswerRow

    target: Target
    target_name: str
    error: str


def row_of(workspace: Workspace, of: Answer | NoAnswer, target_name: str) -> AnswerRow | LackingRow:
    """The row of an answer, with its predicted peak memory."""
    if isinstance(of, NoAnswer):
        return LackingRow(of.target, target_name, of.reason)
    try:
        memory = peak_memory.memory_of_plan(workspace, of.plan, target=of.target)
    except BricksError as error:
        memory = UnknownMemory(of.plan.model, str(error))
    return AnswerRow(of, target_name, memory)


def meets(latency: Interval, bound: float) -> str:
    """Whether ``latency`` is at most ``bound``; uncertain if the bound is within the interval."""
    if latency.high <= bound:
        return YES
    return NO if latency.low > bound else UNCERTAIN


def fastest_first(row: AnswerRow | LackingRow) -> tuple[Any, ...]:
    """Sort key: the fastest first, rows without an answer last."""
    estimate_s = row.answer.estimate.estimate_s if isinstance(row, AnswerRow) else 0.0
    target = row.target
    lacks = isinstance(row, LackingRow)
    return lacks, estimate_s, target.system.name, target.runtime.threads, target.key
