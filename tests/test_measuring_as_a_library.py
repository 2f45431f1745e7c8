from pathlib import Path

import psutil
import pytest
from factories import conv_net, mlp, save

import bricks


def test_the_five_calls(tmp_path: Path) -> None:
    path = save(conv_net(), tmp_path, "conv.onnx")
    with bricks.Bench(cache=tmp_path / "cache", threads=1, runtime="fake") as bench:
        model = bench.read(path)
        decomposition = bench.decompose(model)
        measured = bench.measure([model])
        estimate = bench.predict(model)
        comparison = bench.compare([model])
    assert set(decomposition.bricks) == set(decomposition.plan.keys)
    assert measured.new_bricks == len(decomposition.bricks)
    assert isinstance(estimate, bricks.Estimate)
    (row,) = comparison.rows
    assert isinstance(row, bricks.Compared)
    assert row.ratio == pytest.approx(1, abs=0.02)
    assert psutil.Process().children() == []


def test_nothing_is_started_and_nothing_written_before_it_is_needed(tmp_path: Path) -> None:
    path = save(mlp(), tmp_path)
    with bricks.Bench(tmp_path / "cache", runtime="fake") as bench:
        bench.read(path)
        assert psutil.Process().children() == []
    with pytest.raises(bricks.UsageError):
        bricks.Bench(tmp_path / "other", runtime="nonsense")
    with pytest.raises(bricks.UsageError):
        bricks.Bench(tmp_path / "other", threads=0)
    assert not (tmp_path / "other").exists()


def test_an_exception_of_the_caller_ends_the_worker(tmp_path: Path) -> None:
    path = save(mlp(), tmp_path)
    with (
        pytest.raises(ZeroDivisionError),
        bricks.Bench(tmp_path / "cache", runtime="fake") as bench,
    ):
        bench.measure([bench.read(path)])
        assert len(psutil.Process().children()) == 1
        raise ZeroDivisionError
    assert psutil.Process().children() == []


def test_progress_is_told_what_is_done_and_how_far(tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    path = save(mlp(), tmp_path, "mlp.onnx")
    with bricks.Bench(
        tmp_path / "cache", runtime="fake", progress=lambda what, share: told.append((what, share))
    ) as bench:
        bench.measure([bench.read(path)])
    shares = [share for what, share in told if what == "mlp"]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] == 1
