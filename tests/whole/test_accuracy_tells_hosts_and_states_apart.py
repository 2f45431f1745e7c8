"""The benchmark of accuracy on small models and the fake runtime: hosts, and states of old ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from commands import chain

import bricks.session.workspace
from benchmarks import accuracy, study
from benchmarks.__main__ import main
from benchmarks.accuracy_page import Case, Row, by_state
from benchmarks.study import Results
from bricks import Bench
from bricks.system import System, fingerprint
from bricks.zoo import entry

# Small models, by names of the zoo, which are in families.
MODELS = {
    "alexnet": ("Relu", "Neg"),
    "gluon_mobilenetv2_05": ("Tanh", "Relu"),
    "zfnet512": ("Relu", "Exp", "Tanh"),
}
MADE_UP = replace(fingerprint(), name="made-up-2c")
OTHER = replace(MADE_UP, name="another 8c", identity={**MADE_UP.identity, "logical_cpus": 97})
ACCURACY, GRANULARITIES = accuracy.BENCHMARKS


class Accuracy:
    """The benchmark in a folder of its own, with one thread at batch 1."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch = folder, monkeypatch
        self.docs = folder / "research"
        self.docs.mkdir()
        (folder / "docs").mkdir()
        for name in (ACCURACY.page, *ACCURACY.others):
            text = (study.ROOT / "research" / name).read_text(encoding="utf-8")
            (self.docs / name).write_text(text, encoding="utf-8")
        monkeypatch.setattr(accuracy, "THREADS", (1,))
        monkeypatch.setattr(accuracy, "BATCHES", (1,))
        self.on(MADE_UP)

    def on(self, system: System) -> None:
        """Move to another host."""
        for module in (study, bricks.session.workspace):
            self._patch.setattr(module, "fingerprint", lambda: system)

    def __call__(self, *words: object) -> None:
        places = ("--cache", self.folder / "cache", "--results", self.folder, "--docs", self.docs)
        every = ("accuracy", *places, "--runtime", "fake", *words)
        assert main([str(word) for word in every]) == 0

    @property
    def hosts(self) -> list[Results[Row]]:
        return ACCURACY.kept(self.folder)

    @property
    def pages(self) -> tuple[str, str, str]:
        """The page of research, that of users, and the README."""
        paths = (self.docs / ACCURACY.page, self.folder / "docs/accuracy.md")
        page, users = (path.read_text(encoding="utf-8") for path in paths)
        return page, users, (self.folder / "README.md").read_text(encoding="utf-8")


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
def benchmark(tmp_path: Path, zoo: Path, monkeypatch: pytest.MonkeyPatch) -> Accuracy:
    monkeypatch.setenv("BRICKS_ZOO", str(zoo))
    return Accuracy(tmp_path, monkeypatch)


def names(rows: Sequence[Row]) -> list[str]:
    return [row.case.model for row in rows]


def test_models_and_bricks_that_were_measured_are_not_measured_again(
    benchmark: Accuracy, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare, calls = bricks.Bench.compare, 0

    def interrupted(bench: bricks.Bench, models: Sequence[bricks.Model]) -> bricks.Comparison:
        nonlocal calls
        found, calls = compare(bench, models), calls + 1
        if calls == 2:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(bricks.Bench, "compare", interrupted)
    with pytest.raises(KeyboardInterrupt):
        benchmark()
    assert names(benchmark.hosts[0].rows) == list(MODELS)[:1]
    benchmark("--minutes", 0)
    first, second = benchmark.hosts[0].rows
    assert first.rounds > second.rounds == 0  # all of the second was in the cache
    benchmark()
    first, *others = benchmark.hosts[0].rows
    assert names([first, *others]) == list(MODELS)
    assert others[-1].rounds > 0
    assert first.new_bricks_us == pytest.approx(first.measured_us, rel=0.2)
    for row in others:  # their Relu, and the Tanh of the last, are bricks of earlier models
        assert 0 < row.new_bricks_us < 0.6 * row.measured_us


def test_two_hosts_give_two_blocks(benchmark: Accuracy) -> None:
    benchmark()
    first, *_ = benchmark.pages
    benchmark.on(OTHER)
    benchmark("--only", "alexnet", "zfnet512")
    benchmark("--only-page")
    both = {host.about.system: host for host in benchmark.hosts}
    assert both.keys() == {"made-up-2c", "another 8c"}
    page, users, readme = benchmark.pages
    for name in both:
        assert users.count(f"| {name}, fake ") == 1
        assert page.count(f"| {name}, fake ") == 2  # of the one case, and of all
    # What the page said of the first host is in its rows still.
    rows = [line for line in first.splitlines() if line.startswith("| made-up-2c, ")]
    assert rows and set(rows) <= set(page.splitlines())
    benchmark("--only-page")
    assert benchmark.hosts[0].about.system in readme
    assert benchmark.pages == (page, users, readme)


def test_estimates_are_for_the_conditions_in_which_their_model_was_run(
    benchmark: Accuracy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bricks are measured first, and models while they and all kernels take twice as long."""
    cache = benchmark.folder / "cache" / Case(1, 1, "any").cache
    with Bench(cache, runtime="fake", threads=1, published=False) as bench:
        bench.measure([bench.read(name) for name in MODELS])
    monkeypatch.setenv("BRICKS_FAKE_STATE", "2")
    benchmark()
    (host,) = benchmark.hosts
    assert names(host.rows) == list(MODELS)
    for each in host.rows:
        assert each.ratio == pytest.approx(2**-0.1, rel=0.02)  # bricks follow 0.9 of the change
        assert each.by_factor is not None
        assert each.ratio == pytest.approx(each.by_factor[accuracy.CALLS.index(1.0)], abs=1e-3)


def row(model: str, ratio: float, state_us: float, other_state_share: float = 0.0) -> Row:
    low_us, high_us = 100 * ratio * 0.9, 100 * ratio * 1.1
    return Row(
        Case(1, 1, model), 10, 5, 100.0, 99.0, 101.0, 100 * ratio, low_us, high_us, ratio,
        state_us=state_us, other_state_share=other_state_share, noise=0.01, composing_us=5.0,
        by_factor=(ratio,) * 13,
    )  # fmt: skip


def test_models_between_two_states_are_counted_by_themselves() -> None:
    rows = (
        row("alexnet", 1.01, 100.0), row("zfnet512", 0.99, 110.0), row("resnet18", 1.02, 200.0),
        row("vgg19", 1.3, 200.0, other_state_share=0.4),
    )  # fmt: skip
    groups = {name: names(of) for name, of in by_state(rows)}
    assert list(groups.values()) == [["alexnet", "zfnet512"], ["resnet18"], ["vgg19"]]
    assert list(groups)[-1] == "between two states"


def test_one_state_needs_no_row_of_its_own() -> None:
    assert list(by_state((row("alexnet", 1.01, 100.0), row("zfnet512", 0.99, 110.0)))) == []


def test_results_of_the_whole_zoo_are_small(tmp_path: Path) -> None:
    """A host with all models of the zoo in four cases takes less than a third of a megabyte."""
    drawn = [row(model, 1 + i / 1000, 123.4, 0.0123) for i, model in enumerate([*MODELS] * 43)]
    path = tmp_path / "made-up.json"
    ACCURACY.write(Results(rows=tuple(drawn * 4)), path)
    assert path.stat().st_size < 333_000


@pytest.mark.slow
def test_the_granularities_are_pieces_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = Accuracy(tmp_path, monkeypatch)
    monkeypatch.setattr(accuracy, "CUT", ("squeezenet",))
    for count in range(1, len(accuracy.GRANULARITIES) + 1):
        benchmark("--minutes", 0, "--only", "granularities")
        assert len(GRANULARITIES.kept(tmp_path)[0].rows) == count
    cuts = GRANULARITIES.kept(tmp_path)[0].rows
    assert tuple(cut.case.granularity for cut in cuts) == accuracy.GRANULARITIES
    assert "1 models (squeezenet)" in benchmark.pages[0]
