"""Whatever a study is about: what comes before what, and how far off a prediction is."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bricks.studies.study import Checked, Needs, Study, ask
from bricks.units.interval import Interval


@dataclass
class NotingWorkspace:
    """Notes what is done with it."""

    done: list[str]

    @contextmanager
    def timing(self) -> Iterator[None]:
        self.done.append("alone")
        yield
        self.done.append("together")


@dataclass(frozen=True)
class Answer:
    predicted: float
    observed: float | None
    errors: Sequence[str] = ()


class Noted(Study[str, float, float, Answer]):
    """Notes what is asked of it, and fails where its options say."""

    def note(self, what: str) -> None:
        workspace: Any = self.workspace
        workspace.done.append(what)
        if what == self.options:
            raise ValueError(what)

    def needs(self) -> Needs:
        self.note("needs")
        models: Any = ["model"]
        bricks: Any = ["brick"]
        rule: Any = "rule"
        precise: Any = "precise"
        return Needs(models, bricks, rule, [lambda: self.note("other")], precise)

    def predict(self) -> float:
        self.note("predict")
        return 2.0

    def observe(self) -> Generator[None, float, float]:
        try:
            self.note("before")
            predicted = yield
            self.note("after")
            return predicted / 2
        finally:
            self.note("close")

    def result(self, prediction: float, observation: float | None) -> Answer:
        return Answer(prediction, observation)


MEASURED = ["needs", "measure model until precise", "measure brick until rule", "other", "predict"]


@pytest.fixture(autouse=True)
def _noted_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(workspace: NotingWorkspace, models: Sequence[str], *, rule: Any) -> None:
        workspace.done.append(f"measure {', '.join(models)} until {rule}")

    def isolated(workspace: NotingWorkspace, bricks: Sequence[str], *, rule: Any) -> None:
        workspace.done.append(f"measure {', '.join(bricks)} until {rule}")

    monkeypatch.setattr("bricks.session.measuring.measure", measure)
    monkeypatch.setattr("bricks.session.measuring.measure_isolated", isolated)


def noted(fails: str = "") -> tuple[Noted, list[str]]:
    done: list[str] = []
    workspace: Any = NotingWorkspace(done)
    return Noted(fails, workspace), done


def test_what_is_needed_is_measured_before_the_prediction() -> None:
    study, done = noted()
    assert ask(study) == Answer(2.0, None)
    assert done == MEASURED


def test_nothing_is_measured_where_it_must_not() -> None:
    study, done = noted()
    assert ask(study, measure=False) == Answer(2.0, None)
    assert done == ["needs", "predict"]


def test_the_real_thing_is_run_before_and_after_while_nobody_else_times() -> None:
    study, done = noted()
    assert ask(study, check=True) == Answer(2.0, 1.0)
    before, after = ["alone", "before", "together"], ["alone", "after", "close", "together"]
    assert done == [*before, *MEASURED, *after]


@pytest.mark.parametrize("step", ["before", "needs", "other", "predict", "after"])
def test_what_was_begun_is_closed_whatever_fails(step: str) -> None:
    study, done = noted(step)
    with pytest.raises(ValueError, match=step):
        ask(study, check=True)
    assert done[done.index(step) :].count("close") == 1


numbers = st.floats(1e-3, 1e3)


@given(value=numbers, below=numbers, above=numbers, observed=numbers)
def test_a_checked_figure_says_how_far_off_it_is(
    value: float, below: float, above: float, observed: float
) -> None:
    checked = Checked(Interval(value, value - below, value + above), observed)
    assert checked.ratio * observed == pytest.approx(value)
    assert checked.error == abs(checked.ratio - 1) >= 0
    assert checked.inside == (value - below <= observed <= value + above)
    assert Checked(checked.predicted, value).error == 0
    assert Checked(checked.predicted, value).inside
