"""The frame of benchmarks: what is kept of a call, and what the next one does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from refusals import refused

from benchmarks import __main__ as command
from benchmarks import study
from benchmarks.study import QUICK_CASES, QUICK_RULE, Benchmark, Options, Results, Run
from bricks import BricksError
from bricks.system import System, fingerprint
from bricks.units.interval import Interval

HERE = replace(fingerprint(), name="made-up-2c")
NAMESAKE = replace(HERE, identity={**HERE.identity, "logical_cpus": 97})
ELSEWHERE = replace(NAMESAKE, name="another 8c")
NOW = 0.0  # a deadline that has passed


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Row:
    case: Case
    call: int
    latency_s: Interval
    parts: tuple[Interval, ...] = ()
    note: str | None = None


CASES = [Case("a"), Case("b", 2), Case("c")]


class MadeUp:
    """A benchmark of three cases, in a folder of its own."""

    def __init__(self, folder: Path, **changes: object) -> None:
        self.folder, self.measured = folder, list[Case]()
        self.before: Callable[[Case, Run], None] = lambda case, run: None
        self.benchmark: Benchmark[Case, Row] = Benchmark(
            "made_up", "page.md", Row, lambda: CASES, self.run, self.parts
        )
        self.benchmark = replace(self.benchmark, **changes)

    def run(self, case: Case, run: Run) -> Row:
        self.before(case, run)
        self.measured.append(case)
        return Row(case, len(self.measured), Interval(0.5, 0.25, 1.0), (Interval(1, 1, 1),))

    @staticmethod
    def parts(results: Results[Row]) -> dict[str, str]:
        return {"rows": ", ".join(f"{row.case.name} {row.call}" for row in results.rows)}

    def __call__(self, **options: object) -> int:
        return self.benchmark.measure(replace(Options(results=self.folder), **options))

    @property
    def kept(self) -> list[Results[Row]]:
        return self.benchmark.kept(self.folder)

    @property
    def names(self) -> list[str]:
        return [row.case.name for row in self.kept[0].rows]


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[System], None]:
    """Puts benchmarks on another host."""

    def put(system: System) -> None:
        monkeypatch.setattr(study, "fingerprint", lambda: system)

    put(HERE)
    return put


@pytest.fixture
def made_up(tmp_path: Path) -> MadeUp:
    return MadeUp(tmp_path)


def test_pieces_are_the_same_cases_once_each(made_up: MadeUp) -> None:
    for count in (1, 2):
        assert made_up(deadline_s=NOW) == len(CASES) - count
        assert made_up.names == ["a", "b", "c"][:count]
    assert made_up() == 0
    assert made_up.measured == CASES
    assert made_up() == 0
    assert made_up.measured == CASES


def test_an_interruption_loses_the_case_that_it_meets(made_up: MadeUp) -> None:
    def interrupt(case: Case, run: Run) -> None:
        if case.name == "b":
            raise KeyboardInterrupt

    made_up.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        made_up()
    assert made_up.names == ["a"]
    made_up.before = lambda case, run: None
    made_up()
    assert made_up.measured == CASES


def test_a_case_that_fails_is_named_and_tried_again_when_asked_for(made_up: MadeUp) -> None:
    def fail(case: Case, run: Run) -> None:
        if case.threads == 2:
            raise BricksError("b: no")

    made_up.before = fail
    made_up()
    (failed,) = made_up.kept[0].failed
    assert (made_up.names, failed.case, failed.error) == (["a", "c"], CASES[1], "b: no")
    made_up.before = lambda case, run: None
    made_up()
    assert made_up.names == ["a", "c"]
    made_up(retry=True)
    assert (made_up.names, made_up.kept[0].failed) == (["a", "c", "b"], ())


def test_some_cases_are_chosen_by_their_words(made_up: MadeUp) -> None:
    made_up(only=("2", "c"))
    assert made_up.names == ["b", "c"]
    made_up(only=("nothing",))
    assert made_up.names == ["b", "c"]
    made_up(only=("made_up",))
    assert made_up.names == ["b", "c", "a"]


def test_measuring_again_replaces_the_chosen_cases(made_up: MadeUp) -> None:
    made_up()
    made_up(again=True, only=("b",))
    assert [(row.case.name, row.call) for row in made_up.kept[0].rows] == [
        ("a", 1), ("c", 3), ("b", 4),
    ]  # fmt: skip


def test_results_of_two_systems_are_not_mixed(
    made_up: MadeUp, on: Callable[[System], None]
) -> None:
    made_up(deadline_s=NOW)
    on(ELSEWHERE)
    with refused(SystemExit, HERE.name, ELSEWHERE.name):
        made_up()
    assert made_up.names == ["a"]
    made_up(again=True)
    assert made_up.kept[0].about.system == ELSEWHERE.name


def test_results_of_two_versions_are_not_mixed(
    made_up: MadeUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def note(case: Case, run: Run) -> None:
        with run.bench(runtime="fake", threads=1) as bench:
            assert bench.workspace.conditions.rule == made_up.benchmark.rule

    made_up.before = note
    made_up(deadline_s=NOW)
    (results,) = made_up.kept
    (version,) = results.about.runtimes.values()
    old = replace(results.about, runtimes={"fake": "0.1"})
    made_up.benchmark.write(replace(results, about=old), made_up.folder / "made_up.json")
    with refused(SystemExit, "0.1", version):
        made_up()


def test_each_host_has_a_file_of_its_own(tmp_path: Path, on: Callable[[System], None]) -> None:
    made_up = MadeUp(tmp_path, per_host=True)
    for system in (HERE, NAMESAKE, ELSEWHERE):
        on(system)
        made_up()
    assert len(made_up.measured) == 3 * len(CASES)
    newest, *others = made_up.kept
    assert newest.others == tuple(others)
    keys = {results.about.key for results in (newest, *others)}
    assert keys == {HERE.key, NAMESAKE.key} and len(others) == 2


def test_results_are_read_as_they_were_written(made_up: MadeUp) -> None:
    made_up()
    path = made_up.folder / "made_up.json"
    before = path.read_bytes()
    assert len(before.splitlines()) == len(CASES) + 4
    made_up.benchmark.write(made_up.benchmark.read(path), path)
    assert path.read_bytes() == before


def test_quick_runs_are_rough_and_leave_pages_and_results_alone(
    made_up: MadeUp, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rough = []
    made_up.before = lambda case, run: rough.append((run.rule, run.folder))
    monkeypatch.setattr(command, "benchmarks_in", lambda name: (made_up.benchmark,))
    monkeypatch.setattr(command, "QUICK", made_up.folder / "quick")
    page = made_up.folder / "page.md"
    page.write_text("<!-- rows -->as it was<!-- /rows -->\n", encoding="utf-8")
    places = ["--results", str(made_up.folder), "--docs", str(made_up.folder)]
    assert command.main(["times", "--quick", *places]) == 0
    cache = made_up.folder / "quick" / "cache" / "made_up"  # not that of other runs
    assert rough == [(QUICK_RULE, cache)] * QUICK_CASES
    assert "| a | 1 | 1 |" in capsys.readouterr().out
    assert "as it was" in page.read_text(encoding="utf-8")
    assert made_up.kept == []
    assert command.main(["times", "--minutes", "0", *places]) == 0
    assert "2 cases are missing" in capsys.readouterr().err
    assert "as it was" in page.read_text(encoding="utf-8")
    assert command.main(["times", *places]) == 0
    assert "<!-- rows -->a 3, b 4, c 5<!-- /rows -->" in page.read_text(encoding="utf-8")


def test_measuring_again_and_keeping_a_cache_exclude_each_other(tmp_path: Path) -> None:
    with refused(SystemExit, "--again", "--cache"):
        command.main(["times", "--again", "--cache", str(tmp_path)])
