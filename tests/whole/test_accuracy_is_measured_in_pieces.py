"""benchmarks/accuracy.py goes on where it stopped, and keeps hosts and machine states apart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import accuracy
import accuracy_page
import pytest
from accuracy_figures import case_figures, summed_up
from accuracy_results import Case, Host, Row, file_of, hosts, load, save
from commands import chain
from refusals import refused
from tiers import slow_but

import bricks
import bricks.session.workspace
from bricks.system import fingerprint
from bricks.zoo import entry

# Small models, by names of the zoo, which are in families.
MODELS = {
    "alexnet": ("Relu", "Neg"),
    "gluon_mobilenetv2_05": ("Tanh", "Relu"),
    "zfnet512": ("Relu", "Exp", "Tanh"),
}
MADE_UP = replace(fingerprint(), name="made-up-2c")
OTHER = replace(MADE_UP, name="another 8c", identity={**MADE_UP.identity, "logical_cpus": 97})
README = f"# Title\n\n{accuracy_page.MARKS[0]}\nold\n{accuracy_page.MARKS[1]}\n\nThe rest.\n"


class Benchmark:
    """The program with the fake runtime, on small models, in a folder of its own."""

    def __init__(self, folder: Path, models: Sequence[str] = tuple(MODELS)) -> None:
        self.folder, self.models = folder, models
        self.results, self.page = folder / "results", folder / "accuracy.md"
        self.readme = folder / "README.md"
        self.readme.write_text(README, encoding="utf-8")

    def __call__(self, *words: object) -> None:
        places = ("--cache", self.folder / "cache", "--results", self.results)
        pages = ("--page", self.page, "--readme", self.readme)
        small = ("--threads", 1, "--batches", 1, "--at-once", 1, "--runtime", "fake")
        every = (*places, *pages, *small, "--models", *self.models, *words)
        accuracy.main([str(word) for word in every])

    @property
    def unfinished(self) -> Host:
        return load(file_of(self.results, MADE_UP.name, unfinished=True))

    @property
    def finished(self) -> list[Host]:
        return hosts(self.results)


@pytest.fixture(autouse=True)
def _on_a_made_up_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bricks.session.workspace, "fingerprint", lambda: MADE_UP)


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zoo of the small models."""
    folder = tmp_path_factory.mktemp("zoo")
    facts = entry("squeezenet").to_json()
    manifest = [{**facts, "name": name, "file": f"{name}.onnx"} for name in MODELS]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for name, operators in MODELS.items():
        (folder / f"{name}.onnx").write_bytes(chain(*operators).SerializeToString())
    return folder


@pytest.fixture
def benchmark(tmp_path: Path, zoo: Path, monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    monkeypatch.setenv("BRICKS_ZOO", str(zoo))
    return Benchmark(tmp_path)


def names(case: Case) -> list[str]:
    return [row.model for row in case.rows]


def test_pieces_are_the_same_models_once_each(benchmark: Benchmark, tmp_path: Path) -> None:
    for count in (1, 2):
        benchmark("--minutes", 0)
        (case,) = benchmark.unfinished.cases
        assert names(case) == list(benchmark.models[:count])
        assert benchmark.finished == []
        assert not benchmark.page.exists()
    benchmark("--minutes", 0)
    (host,) = benchmark.finished
    (case,) = host.cases
    assert names(case) == list(benchmark.models)
    assert not file_of(benchmark.results, host.system, unfinished=True).exists()
    (tmp_path / "whole").mkdir()
    whole = Benchmark(tmp_path / "whole", benchmark.models)
    whole()
    (at_once,) = whole.finished[0].cases
    for one, other in zip(case.rows, at_once.rows, strict=True):
        assert (one.model, one.bricks, one.occurrences) == (
            other.model, other.bricks, other.occurrences,
        )  # fmt: skip
        assert one.ratio == pytest.approx(other.ratio, abs=0.01)
    assert case.figures[0].models == at_once.figures[0].models == len(benchmark.models)
    assert case.cost is not None and at_once.cost is not None
    assert case.cost.speedup_latency == pytest.approx(at_once.cost.speedup_latency, rel=0.01)


@pytest.mark.parametrize("at", slow_but(lambda at: at == 2, [1, 2]))
def test_what_was_measured_before_an_interruption_is_not_measured_again(
    at: int, benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare, calls = bricks.Bench.compare, 0

    def interrupted(bench: bricks.Bench, models: Any) -> bricks.Comparison:
        nonlocal calls
        found, calls = compare(bench, models), calls + 1
        if calls == at:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(bricks.Bench, "compare", interrupted)
    with pytest.raises(KeyboardInterrupt):
        benchmark()
    before = benchmark.unfinished.case(1, 1)
    assert names(before) == list(benchmark.models[: at - 1])
    benchmark("--minutes", 0)
    after = benchmark.unfinished.case(1, 1)
    assert names(after) == list(benchmark.models[:at])
    assert after.conduct.rounds == before.conduct.rounds  # all of it was in the cache
    benchmark()
    (whole,) = benchmark.finished[0].cases
    assert names(whole) == list(benchmark.models)
    assert whole.conduct.rounds > after.conduct.rounds


def test_a_part_can_be_finished_and_the_next_call_begins_anew(benchmark: Benchmark) -> None:
    benchmark("--minutes", 0)
    benchmark("--finish")
    (host,) = benchmark.finished
    assert names(host.cases[0]) == list(benchmark.models[:1])
    assert "1 thread, batch 1" in benchmark.page.read_text(encoding="utf-8")
    benchmark("--minutes", 0)
    (again,) = benchmark.unfinished.cases
    assert names(again) == list(benchmark.models[:1])
    assert again.conduct.rounds > 0  # in a session of its own
    assert benchmark.finished == [host]  # until the new one is finished


def test_there_must_be_something_to_finish(benchmark: Benchmark) -> None:
    with refused(SystemExit, f"{MADE_UP.name}.unfinished.json"):
        benchmark("--finish")
    assert benchmark.finished == []


def test_a_session_goes_on_only_as_it_was_begun(benchmark: Benchmark) -> None:
    benchmark("--minutes", 0)
    with refused(SystemExit, f"{MADE_UP.name}.unfinished.json", 0.02, 0.1):
        benchmark("--minutes", 0, "--precision", 0.1)


def test_a_model_that_fails_is_named_and_not_tried_again(
    benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_FAKE_FAULTS", "Neg=error")
    benchmark("--minutes", 0)
    (case,) = benchmark.unfinished.cases
    assert case.rows == ()
    assert list(case.failures) == ["alexnet"]
    monkeypatch.delenv("BRICKS_FAKE_FAULTS")
    benchmark("--minutes", 0)
    (case,) = benchmark.unfinished.cases
    assert (names(case), list(case.failures)) == ([benchmark.models[1]], ["alexnet"])
    benchmark("--finish")
    assert "Not compared: 1 thread, batch 1: alexnet" in benchmark.page.read_text(encoding="utf-8")


def test_two_hosts_give_two_blocks(benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark()
    first = benchmark.page.read_text(encoding="utf-8")
    monkeypatch.setattr(bricks.session.workspace, "fingerprint", lambda: OTHER)
    benchmark("--models", "alexnet", "zfnet512")
    both = {host.system: host for host in benchmark.finished}
    assert both.keys() == {"made-up-2c", "another 8c"}
    page, readme = (p.read_text(encoding="utf-8") for p in (benchmark.page, benchmark.readme))
    for host in both.values():
        assert readme.count(f"| **{host.system}** |") == 1
        assert page.count(f"| {host.system}, fake ") == len(host.cases) + 1
    # What the page said of the first host is in its rows still.
    rows = [line for line in first.splitlines() if line.startswith("| made-up-2c, ")]
    assert rows and set(rows) <= set(page.splitlines())
    assert readme.startswith("# Title\n") and readme.endswith("\nThe rest.\n")
    assert "old" not in readme
    again = page, readme
    benchmark("--pages")  # from the results alone
    assert again == tuple(p.read_text(encoding="utf-8") for p in (benchmark.page, benchmark.readme))


def test_two_hosts_of_one_name_are_two_hosts(
    benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark("--models", "alexnet")
    twin = replace(OTHER, name=MADE_UP.name)
    monkeypatch.setattr(bricks.session.workspace, "fingerprint", lambda: twin)
    benchmark("--models", "alexnet")
    first, second = sorted(host.system for host in benchmark.finished)
    assert first == MADE_UP.name
    assert second.startswith(f"{MADE_UP.name}-")


def test_models_note_the_state_that_they_were_run_in(
    benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark("--minutes", 0)
    monkeypatch.setenv("BRICKS_FAKE_STATE", "2")
    benchmark()
    (host,) = benchmark.finished
    usual, *slower = (row.state_us for row in host.cases[0].rows)
    assert usual is not None
    assert slower == pytest.approx([2 * usual] * (len(benchmark.models) - 1), rel=0.02)
    every, *apart = host.cases[0].figures
    assert every.models == len(benchmark.models)
    assert sorted(figures.models for figures in apart) == [1, len(benchmark.models) - 1]
    page = benchmark.page.read_text(encoding="utf-8")
    assert page.count("| – in the state of ") == 2


def row(model: str, ratio: float, state_us: float, other_state_share: float = 0.0) -> Row:
    low_us, high_us = 100 * ratio * 0.9, 100 * ratio * 1.1
    return Row(
        model, 10, 5, 100.0, 99.0, 101.0, 100 * ratio, low_us, high_us, ratio,
        state_us=state_us, other_state_share=other_state_share, noise=0.01, composing_us=5.0,
        read_s=0.1, by_factor=(ratio,) * 13,
    )  # fmt: skip


def test_models_between_two_states_are_counted_by_themselves() -> None:
    rows = (
        row("alexnet", 1.01, 100.0), row("zfnet512", 0.99, 110.0), row("resnet18", 1.02, 200.0),
        row("vgg19", 1.3, 200.0, other_state_share=0.4),
    )  # fmt: skip
    every, fast, slow, between = case_figures(Case(1, 1, rows))
    assert every.models == 4 and every.errors.worst == pytest.approx(0.3)
    assert (fast.models, slow.models, between.models) == (2, 1, 1)
    assert slow.errors.worst == pytest.approx(0.02)
    assert between.errors.worst == pytest.approx(0.3)
    assert [each.inside for each in (every, between)] == [0.75, 0.0]


def test_one_state_needs_no_row_of_its_own() -> None:
    rows = (row("alexnet", 1.01, 100.0), row("zfnet512", 0.99, 110.0))
    (every,) = case_figures(Case(1, 1, rows))
    assert every.title == "1 thread, batch 1"


def test_results_are_small_and_read_as_they_were_written(tmp_path: Path) -> None:
    """A host with all models of the zoo in four cases takes less than a quarter of a megabyte."""
    drawn = [row(model, 1 + i / 1000, 123.4, 0.0123) for i, model in enumerate([*MODELS] * 43)]
    cases = [Case(threads, batch, tuple(drawn)) for threads in (1, 2) for batch in (1, 4)]
    host = Host(
        "made-up", "s1-0", "fake", "1", "2026-01-02T03:04:05", None, 128, 0.02, 12, tuple(cases)
    )
    host = summed_up(host, "2026-01-03")
    path = file_of(tmp_path, "made-up")
    save(host, path)
    assert path.stat().st_size < 250_000
    again = load(path)
    assert [r.ratio for r in again.rows] == [r.ratio for r in host.rows]
    assert again.figures == host.figures
    assert accuracy_page.page([again], "") == accuracy_page.page([host], "")
    save(again, tmp_path / "copy.json")
    assert (tmp_path / "copy.json").read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_the_granularities_are_pieces_too(tmp_path: Path) -> None:
    benchmark = Benchmark(tmp_path, ["squeezenet"])
    for count in range(1, len(accuracy.GRANULARITIES) + 1):
        benchmark("--minutes", 0)
        assert len(benchmark.unfinished.cuts) == count - 1
    benchmark("--minutes", 0)
    (host,) = benchmark.finished
    assert tuple(cut.granularity for cut in host.cuts) == accuracy.GRANULARITIES
    assert "1 models (squeezenet) with 1 thread" in benchmark.page.read_text(encoding="utf-8")
