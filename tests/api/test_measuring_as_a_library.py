from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from factories import conv_net, mlp, save
from fork_server import children

import bricks
from bricks.store import Owner


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
    assert isinstance(row, bricks.ModelComparison)
    assert row.ratio == pytest.approx(1, abs=0.02)
    assert children() == []


def test_nothing_is_started_and_nothing_written_before_it_is_needed(tmp_path: Path) -> None:
    path = save(mlp(), tmp_path)
    with bricks.Bench(tmp_path / "cache", runtime="fake") as bench:
        bench.read(path)
        assert children() == []
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
        assert len(children()) == 1
        raise ZeroDivisionError
    assert children() == []


def test_progress_is_told_what_is_done_and_how_far(tmp_path: Path) -> None:
    announced: list[tuple[str, float]] = []
    path = save(mlp(), tmp_path, "mlp.onnx")
    with bricks.Bench(
        tmp_path / "cache",
        runtime="fake",
        progress=lambda what, share: announced.append((what, share)),
    ) as bench:
        bench.measure([bench.read(path)])
    shares = [share for what, share in announced if what.endswith(" of mlp")]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] == 1


def claimable(bench: bricks.Bench, keys: Sequence[str]) -> bool:
    """Whether another run could measure, now, all of ``keys`` that are not measured."""
    settled, other = (
        bench.store.measurements.results(bench.target.key, keys).keys(),
        Owner.current(),
    )
    claimed = [claim.key for claim in bench.store.claims.claim(bench.target.key, keys, other)]
    bench.store.claims.release(bench.target.key, claimed, other)
    return settled | set(claimed) == set(keys)


def test_after_an_interrupt_the_same_bench_goes_on(tmp_path: Path) -> None:
    first = save(conv_net(), tmp_path, "conv.onnx")
    second = save(mlp(), tmp_path, "mlp.onnx")
    armed = [0.05, 0.3]  # while loading, and while sampling

    def interrupt(what: str, share: float) -> None:
        if what.endswith(" of conv and 1 more") and armed and share > armed[0]:
            del armed[0]
            raise KeyboardInterrupt

    with bricks.Bench(tmp_path / "cache", runtime="fake", progress=interrupt) as bench:
        models = [bench.read(first), bench.read(second)]
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                bench.measure(models)
            keys = bench.decompose(models[0]).plan.keys
            assert claimable(bench, keys)
        assert not armed
        done = bench.measure(models[::-1])
        assert (done.failures, done.unfinished) == ((), 0)
        assert isinstance(bench.predict(models[0], measure=False), bricks.Estimate)


def test_a_bench_may_be_used_in_threads_that_end(tmp_path: Path) -> None:
    path = save(conv_net(), tmp_path, "conv.onnx")
    with bricks.Bench(tmp_path / "cache", runtime="onnxruntime", threads=1) as bench:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: bench.decompose(bench.read(path))).result()
        (worker,) = children()
        assert bench.verify(bench.read(path)).exact
        assert children() == [worker]
