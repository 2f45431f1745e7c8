"""How results of studies are shown: functions of this package by the name of the study.

Commands and pages of a server use the same ones. A function is imported when it is called, since
commands are made without their results. Must not know how parts are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType


def from_report(name: str) -> Callable[..., Any]:
    """The function ``module:function`` of ``bricks.report``, imported when it is called."""
    module, _, function = name.partition(":")

    def call(*arguments: Any, **named: Any) -> Any:
        return getattr(import_module(f"bricks.report.{module}"), function)(*arguments, **named)

    return call


@dataclass(frozen=True, slots=True)
class StudyView:
    """Functions of a result: its ``parts``, and where it has them an answer, remarks and details.

    ``answer`` is the first line, in words, which JSON has too; ``remarks`` are the lines below the
    parts, and ``details`` are parts that replace the usual ones where all is to be shown.
    """

    parts: Callable[[Any], Sequence[RenderableType]]
    answer: Callable[[Any], str] | None = None
    remarks: Callable[[Any], Sequence[str]] = lambda result: ()
    details: Callable[[Any], Sequence[RenderableType]] | None = None


def _view(module: str, prefix: str, *, answer: str, remarks: str | None = None) -> StudyView:
    """The functions of ``module`` whose names begin with ``prefix``."""
    return StudyView(
        from_report(f"{module}:{prefix}_parts"),
        from_report(answer),
        from_report(remarks or f"{module}:{prefix}_remarks"),
        from_report(f"{module}:{prefix}_details"),
    )


_VIEWS: Mapping[str, StudyView] = {
    "llm": _view("generation", "llm", answer="answers.generation:llm_answer"),
    "scenario": _view("scenario", "scenario", answer="answers.scenario:scenario_text"),
    "scale": _view(
        "scaling", "scaling",
        answer="answers.scaling:scaling_answer", remarks="answers.scaling:scaling_remarks",
    ),
    "train": _view(
        "training", "training",
        answer="answers.training:training_answer", remarks="answers.training:training_remarks",
    ),
}  # fmt: skip
_ANY = StudyView(from_report("study:study_parts"))


def view_of_study(name: str) -> StudyView:
    """The view of the study called ``name``; that of any study, if it has none of its own."""
    return _VIEWS.get(name, _ANY)
