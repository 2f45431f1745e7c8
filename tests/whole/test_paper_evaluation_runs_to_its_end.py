from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from factories import branching_net, conv_net, mlp, save

from benchmarks import paper
from benchmarks.evaluation import published, results
from benchmarks.evaluation.results import Failed, Results, Row
from bricks import Bench

CUTS = ("1", "2", "executed")
MODELS = {"conv": conv_net(blocks=1), "branching": branching_net(), "mlp": mlp()}


class Run:
    """The command on three tiny models, on the fake runtime."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache, self.docs = folder / "cache", folder / "docs"
        self.file = folder / "paper.json"
        self.models = [str(save(proto, folder, f"{n}.onnx")) for n, proto in MODELS.items()]

    def __call__(self, *more: str) -> int:
        return paper.main([
            "--models", *self.models, "--runtimes", "fake", "--granularities", *reversed(CUTS),
            "--cache", str(self.cache), "--results", str(self.file), "--docs", str(self.docs),
            *more,
        ])  # fmt: skip

    def found(self) -> Results:
        return results.read(self.file)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(tmp_path_factory.mktemp("paper"))
    assert run() == 0
    return run


def test_every_model_is_compared_at_every_granularity(run: Run) -> None:
    found = run.found()
    assert found.granularities == CUTS
    assert list(found.rows) == [(name, "fake", cut) for name in MODELS for cut in CUTS]
    for row in found.rows.values():
        assert isinstance(row, Row)
        # The fake runtime's nodes add up, however they are cut.
        assert row.ratio == pytest.approx(1, abs=0.01)
    assert found.layers.total == sum(len(proto.graph.node) for proto in MODELS.values())
    assert "synthetic" in (run.docs / "paper.md").read_text(encoding="utf-8")


def test_the_speed_up_is_the_papers_formula(run: Run) -> None:
    for cut in CUTS:
        with Bench(run.cache, runtime="fake", granularity=cut, threads=1) as bench:
            comparison = bench.compare([bench.read(path) for path in run.models])
        assert comparison.rounds == 0, cut
        summary, totals = comparison.summary, run.found().totals["fake", cut]
        assert totals.speedup == pytest.approx(summary.speedup_latency, rel=1e-3), cut
        assert (totals.models, totals.bricks) == (summary.models, summary.bricks), cut


def test_networks_count_as_often_as_the_paper_has_trained_models_of_them(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run.found().trained["fake", "1"].models == 0
    trained = {"conv": ("one", "another", "a third"), "mlp": ("one",), "none": ("one",)}
    monkeypatch.setattr(published, "TRAINED", trained)
    again = Run(shutil.copytree(run.folder, tmp_path / "again"))
    assert again() == 0
    found = again.found()
    measured_s = {}
    for name in trained:
        if (row := found.rows.get((name, "fake", "1"))) is not None:
            assert isinstance(row, Row)
            measured_s[name] = row.measured_s[0]
    counted, once = found.trained["fake", "1"], found.totals["fake", "1"]
    assert counted.models == 4
    assert counted.models_s == pytest.approx(3 * measured_s["conv"] + measured_s["mlp"], rel=1e-3)
    assert counted.bricks < once.bricks
    assert counted.bricks_s < once.bricks_s
    capsys.readouterr()


def test_a_finished_run_changes_nothing_when_it_is_run_again(run: Run) -> None:
    before = {path: path.read_bytes() for path in run.folder.rglob("paper*") if path.is_file()}
    dated, found = run.file.read_bytes(), run.found()
    # Models that are measured after a row add rounds to bricks of it, where others disturb them.
    (first, row), *_ = found.rows.items()
    assert isinstance(row, Row)
    rows = {**found.rows, first: replace(row, estimate_s=row.measured_s)}
    results.write(replace(found, date="2020-04-20", rows=rows), run.file)
    assert run() == 0
    assert run.found().date == "2020-04-20"  # the day of measuring, not that of writing
    run.file.write_bytes(dated)
    assert run("--write-only") == 0
    assert {path: path.read_bytes() for path in before} == before


def test_every_model_is_in_the_tables(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run("--tables") == 0
    printed = capsys.readouterr().out
    for name in MODELS:
        assert printed.count(f"| {name} |") == 2


def test_an_interrupted_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path)
    told: list[str] = []

    def interrupted(line: str) -> None:
        told.append(line)
        if line.startswith("[2/3] branching"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(paper, "note", interrupted)
        assert run("--granularities", "1") == 130
    assert "--cache" in told[-1]
    assert run.found().reached == ["conv"]
    assert len(run.found().models) == 3
    (before,) = run.found().rows.values()
    assert run("--granularities", "1") == 0
    assert run.found().reached == list(MODELS)
    after = run.found().rows["conv", "fake", "1"]
    assert isinstance(before, Row)
    assert isinstance(after, Row)
    # The model is not run again; bricks that the others share with it may be.
    assert after.measured_s == before.measured_s
    assert after.estimate_s == pytest.approx(before.estimate_s, rel=0.05)
    capsys.readouterr()


def test_what_cannot_be_compared_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path)
    garbage = tmp_path / "garbage.onnx"
    garbage.write_bytes(b"nothing")
    run.models.append(str(garbage))
    monkeypatch.setenv("BRICKS_FAKE_FAULTS", "GlobalAveragePool+Relu=error")
    assert run("--granularities", "1", "executed") == 1
    rows = run.found().rows
    # What holds both operators fails: whole models, not their bricks.
    failed = {key: row.error for key, row in rows.items() if isinstance(row, Failed)}
    assert {name for name, _, _ in failed} == {"conv", "branching", "garbage"}
    assert all(isinstance(rows["mlp", "fake", cut], Row) for cut in ("1", "executed"))
    page = (run.docs / "paper.md").read_text(encoding="utf-8")
    for name in ("conv", "branching", "garbage"):
        assert f"- {name}, Fake runtime, G = 1, executed: " in page
    assert run.found().layers.models.keys() == MODELS.keys()
    capsys.readouterr()


def test_what_cannot_be_meant_is_said_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path)
    for wrong in (
        ["--granularities", "1", "none"],
        ["--runtimes", "fake", "nonsense"],
        ["--models", run.models[0], run.models[0]],
        ["--models", "no_such_model"],
        ["--threads", "0"],
        ["--docs", run.models[0]],
    ):
        assert run(*wrong) == 1
        error = capsys.readouterr().err
        assert error.startswith("paper: ")
        assert len(error.splitlines()) == 1
    assert not run.file.exists()
