"""Where a model's time goes: the parts add up, rates follow from work, and nothing is guessed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import Here, chain
from factories import conv_net, mlp, model, node, one_node, save, value
from store_examples import measure
from systems import copied

import bricks
from bricks.analysis import explain as explaining
from bricks.analysis.explanation import BestImplementation, Part, same_work
from bricks.predict.features import extract_features
from bricks.session import measuring
from bricks.session.machine_peaks import Level, Peaks, compute_peaks, memory_peaks, peak_bricks

QUICK: dict[str, Any] = {"runtime": "fake", "threads": 1, "effort": "quick"}
PEAKS = Peaks(flops_per_s=100e9, bytes_per_s=10e9, levels=(Level(1 << 15, 10e9),))


def part(**facts: Any) -> Part:
    usual: dict[str, Any] = {
        "brick": "b1-a", "operators": ("Conv",), "shapes": "1 → 1", "occurrences": 2,
        "total_s": 4e-3, "share": 0.5, "predicted": False, "flops": 100_000_000,
        "bytes": 1_000_000, "peaks": PEAKS, "models": 0,
    }  # fmt: skip
    made = usual | facts
    return Part(**{"comparable_flops": made["flops"], "moved_bytes": made["bytes"], **made})


def test_rates_are_those_of_one_occurrence() -> None:
    brick = part()
    assert brick.latency_s == pytest.approx(2e-3)
    assert brick.flops_per_s == pytest.approx(50e9)
    assert brick.bytes_per_s == pytest.approx(0.5e9)
    assert brick.intensity == pytest.approx(100)
    assert (brick.bound, brick.roof_s) == ("compute", pytest.approx(1e-3))
    assert brick.peak_share == pytest.approx(0.5)


def test_peaks_are_measured_before_the_estimate_which_they_inform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the same question, asked again of the same cache, has the same answer."""
    order: list[str] = []
    peaks, basis = explaining.measured_peaks, explaining.predicting.basis
    monkeypatch.setattr(
        explaining,
        "measured_peaks",
        lambda *of, **more: order.append("peaks") or peaks(*of, **more),
    )
    monkeypatch.setattr(
        explaining.predicting, "basis",
        lambda *of, **more: order.append("estimate") or basis(*of, **more),
    )  # fmt: skip
    with bricks.Bench(tmp_path / "cache", **QUICK) as bench:
        bricks.explain(bench.workspace, bench.read(save(conv_net(), tmp_path, "conv.onnx")))
    assert order[:2] == ["peaks", "estimate"]


def test_the_lower_roof_is_the_one_that_binds() -> None:
    brick = part(flops=1_000_000, bytes=10_000_000)
    assert (brick.bound, brick.roof_s) == ("memory", pytest.approx(1e-3))


@pytest.mark.parametrize(
    "missing",
    [{"flops": None}, {"peaks": Peaks()}, {"peaks": Peaks(flops_per_s=1e9)}],
)
def test_what_is_not_known_of_work_or_machine_is_not_made_up(missing: dict[str, Any]) -> None:
    brick = part(**missing)
    assert (brick.roof_s, brick.peak_share, brick.bound) == (None, None, None)


def test_a_brick_that_takes_no_time_has_no_rates() -> None:
    brick = part(total_s=0.0, share=0.0)
    assert (brick.flops_per_s, brick.bytes_per_s, brick.peak_share) == (None, None, None)


def test_what_is_lost_is_lost_at_every_place() -> None:
    assert part(fastest=BestImplementation("b1-b", "t1-a", 0.5e-3)).lost_s == pytest.approx(3e-3)
    assert part(fastest=BestImplementation("b1-b", "t1-a", 5e-3)).lost_s == 0
    assert part().lost_s == 0


def test_peaks_do_the_work_that_they_say() -> None:
    assert max(brick.flops or 0 for brick in compute_peaks()) == 2 * 1024**3
    for stream in memory_peaks():
        assert stream.brick.bytes_moved == pytest.approx(stream.size_bytes, rel=0.01)
        assert (stream.brick.flops or 0) <= stream.size_bytes / 4
    bricks_of_peaks = peak_bricks()
    assert len({brick.key for brick in bricks_of_peaks}) == len(bricks_of_peaks)


def test_a_brick_is_held_against_the_level_of_memory_that_holds_it() -> None:
    levels = Level(1 << 15, 100e9), Level(1 << 20, 40e9), Level(1 << 25, 10e9)
    peaks = Peaks(100e9, 10e9, levels)
    assert [peaks.bandwidth(size) for size in (8, 1 << 15, 1 << 19)] == [100e9] * 3
    assert [peaks.bandwidth(size) for size in (1 << 20, 1 << 24)] == [40e9] * 2
    assert [peaks.bandwidth(size) for size in (1 << 25, 1 << 40)] == [10e9] * 2
    assert Peaks(100e9, 10e9).bandwidth(8) is None


def test_a_larger_size_that_is_faster_raises_the_roof_of_smaller_ones() -> None:
    """So it is with several threads: they share what is too little for one."""
    peaks = Peaks(100e9, 10e9, (Level(1 << 15, 30e9), Level(1 << 20, 60e9), Level(1 << 25, 10e9)))
    assert [peaks.bandwidth(size) for size in (8, 1 << 16, 1 << 21)] == [60e9] * 3


@pytest.fixture(scope="module")
def peaks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which nothing but the peaks and one brick is measured."""
    folder = tmp_path_factory.mktemp("peaks")
    with bricks.Bench(folder / "cache", **QUICK) as bench:
        bricks.explain(bench.workspace, bench.read(save(chain("Neg"), folder)))
    return folder / "cache"


@pytest.fixture
def bench(peaks: Path, tmp_path: Path) -> Iterator[bricks.Bench]:
    shutil.copytree(peaks, tmp_path / "cache")
    with bricks.Bench(tmp_path / "cache", **QUICK) as bench:
        yield bench


def test_what_windows_step_over_is_not_moved(bench: bricks.Bench, tmp_path: Path) -> None:
    windows = ((1, 1, 1.0), (1, 2, 0.25), (2, 2, 1.0), (3, 2, 1.0), (2, 4, 0.25))
    for kernel, stride, share in windows:
        side = 1 + (32 - kernel) // stride
        pool = node("AveragePool", ["x"], ["y"], kernel_shape=[kernel] * 2, strides=[stride] * 2)
        proto = model([pool], [value("x", [1, 8, 32, 32])], [value("y", [1, 8, side, side])])
        (found,) = bricks.explain(
            bench.workspace, bench.read(save(proto, tmp_path, "pool.onnx"))
        ).parts
        assert found.moved_bytes == 4 * 8 * (share * 32 * 32 + side * side), (kernel, stride)


def test_a_view_moves_nothing_and_is_held_against_nothing(
    bench: bricks.Bench, tmp_path: Path
) -> None:
    proto = one_node("Flatten", [value("x", [2, 3, 4])], [value("y", [2, 12])])
    (found,) = bricks.explain(bench.workspace, bench.read(save(proto, tmp_path, "view.onnx"))).parts
    assert (found.moved_bytes, found.peak_share, found.bound) == (None, None, None)
    assert found.bytes_per_s is not None


def test_what_a_peak_of_other_numbers_would_be_is_not_made_up() -> None:
    assert part(comparable_flops=None).peak_share is None
    assert part(comparable_flops=None).flops_per_s == pytest.approx(50e9)


def test_parts_add_up_to_the_estimate(bench: bricks.Bench, tmp_path: Path) -> None:
    read = bench.read(save(conv_net(), tmp_path, "conv.onnx"))
    explanation = bricks.explain(bench.workspace, read)
    estimate = explanation.estimate
    assert isinstance(estimate, bricks.Estimate)
    whole_s = estimate.estimate_s - estimate.call_overhead_s
    assert sum(part.total_s for part in explanation.parts) == pytest.approx(whole_s)
    assert sum(group.total_s for group in explanation.operators) == pytest.approx(whole_s)
    assert sum(part.share for part in explanation.parts) == pytest.approx(1)
    assert sum(group.share for group in explanation.operators) == pytest.approx(1)
    plan = bench.decompose(read).plan
    assert {part.brick: part.occurrences for part in explanation.parts} == dict(plan.counts)
    assert sum(group.occurrences for group in explanation.operators) == len(plan.occurrences)
    assert explanation.parts == tuple(
        sorted(explanation.parts, key=lambda part: (-part.total_s, part.brick))
    )
    assert explanation.peaks.flops_per_s and explanation.peaks.bytes_per_s
    assert explanation.fastest_s == pytest.approx(
        estimate.estimate_s - sum(part.lost_s for part in explanation.parts)
    )


def test_peaks_are_measured_once_whatever_the_effort(peaks: Path, tmp_path: Path) -> None:
    shutil.copytree(peaks, tmp_path / "cache")
    path = save(chain("Neg"), tmp_path)
    found = []
    for effort in ("quick", "full"):
        with bricks.Bench(tmp_path / "cache", **QUICK | {"effort": effort}) as bench:
            assert not measuring.measure_isolated(bench.workspace, peak_bricks()).rounds
            found.append(bricks.explain(bench.workspace, bench.read(path), measure=False).peaks)
    assert found[0] == found[1]
    assert found[0].flops_per_s and found[0].bytes_per_s


def test_where_nothing_is_measured_nothing_is_explained(tmp_path: Path) -> None:
    with bricks.Bench(tmp_path / "cache", **QUICK) as bench:
        read = bench.read(save(mlp(), tmp_path, "mlp.onnx"))
        explanation = bricks.explain(bench.workspace, read, measure=False)
    assert isinstance(explanation.estimate, bricks.IncompleteEstimate)
    assert (explanation.parts, explanation.peaks, explanation.fastest_s) == ((), Peaks(), None)


def test_models_that_have_a_brick_too_are_counted(bench: bricks.Bench, tmp_path: Path) -> None:
    one = bench.read(save(mlp(), tmp_path, "one.onnx"))
    other = bench.read(save(mlp(widths=(8, 64, 10)), tmp_path, "other.onnx"))
    bench.measure([one, other])
    explanation = bricks.explain(bench.workspace, one)
    shared = set(bench.decompose(one).plan.keys) & set(bench.decompose(other).plan.keys)
    assert shared and len(shared) < len(explanation.parts)
    assert {part.brick: part.models for part in explanation.parts} == {
        part.brick: int(part.brick in shared) for part in explanation.parts
    }


def test_layouts_do_the_same_work(tmp_path: Path) -> None:
    """With the real runtime: blocked convolutions do the same work as plain ones."""
    path = save(conv_net(blocks=1, channels=32), tmp_path)
    found = []
    for level in ("all", "extended"):
        with bricks.Bench(tmp_path / "cache", threads=1, optimization=level) as bench:
            bricks_of = bench.decompose(bench.read(path)).bricks.values()
            convs = [brick for brick in bricks_of if "Conv" in brick.operators[0]]
            found.append({same_work(extract_features(brick)) for brick in convs})
            assert len(found[-1]) == len(convs) == 2  # and no two bricks of one model do
    assert found[0] == found[1]


def test_the_fastest_implementation_is_that_of_any_runtime_on_the_same_system(
    bench: bricks.Bench, tmp_path: Path
) -> None:
    read = bench.read(save(mlp(widths=(8, 16, 16, 16)), tmp_path, "mlp.onnx"))
    before = bricks.explain(bench.workspace, read)
    assert {part.fastest for part in before.parts} == {None}
    first, second = before.parts[0], before.parts[1]
    newer = replace(bench.target, runtime=replace(bench.target.runtime, version="2.0"))
    wider = replace(bench.target, runtime=replace(bench.target.runtime, threads=8))
    for target, keys, latency_s in (
        (newer, [first.brick], first.latency_s / 4),
        (newer, [second.brick], second.latency_s * 0.97),  # as fast, for all that one can tell
        (wider, [first.brick], first.latency_s / 8),  # with more threads is no implementation
    ):
        bench.store.systems.save_target(target)
        bench.store.plans.save(bench.decompose(read), target.key)
        measure(bench.store, target, keys, latency_s)
    with bricks.Bench(tmp_path / "cache", **QUICK) as later:
        explanation = bricks.explain(later.workspace, read)
    parts = {part.brick: part for part in explanation.parts}
    assert parts[first.brick].fastest == BestImplementation(
        first.brick, newer.key, first.latency_s / 4
    )
    assert [key for key, part in parts.items() if part.fastest] == [first.brick]
    lost_s = first.total_s * 3 / 4
    assert explanation.fastest_s == pytest.approx(explanation.estimate.estimate_s - lost_s)


def test_the_command_tells_the_same_to_programs_and_to_people(
    here: Here, peaks: Path, tmp_path: Path
) -> None:
    copied(peaks, here)
    path = save(conv_net(blocks=1), tmp_path, "conv.onnx")
    explain = ("explain", "--threads", 1, "--effort", "quick")
    facts = here(*explain, path, "--json").json
    (row,) = facts["models"]
    assert facts["system"]["key"] and facts["runtime"]["backend"] == "fake"
    assert row["error"] is None and row["missing"] == []
    assert row["low_s"] < row["estimate_s"] < row["high_s"]
    total_s = sum(brick["total_s"] for brick in row["bricks"])
    assert total_s == pytest.approx(row["estimate_s"] - row["call_overhead_s"])
    assert {brick["operator"] for brick in row["bricks"]} == {
        group["operator"] for group in row["operators"]
    }
    assert row["peaks"]["flops_per_s"] > 0
    shown = here(*explain, path, "--all")
    assert shown.status == 0
    for brick in row["bricks"]:
        assert brick["brick"][:11] in shown.out
    assert "→ 1×" in shown.out
    few = here(*explain, path)
    assert len(few.out.splitlines()) < len(shown.out.splitlines())
    for out in (few.out, shown.out):
        assert out.splitlines()[0] == facts["answer"]
    assert facts["answer"].startswith("conv spends ")
    costly = {gain["operator"] for gain in row["gains"]}
    assert costly and all(operator in few.out for operator in costly)
    assert all(gain["low_s"] <= gain["gain_s"] <= gain["high_s"] for gain in row["gains"])


def test_what_lacks_is_named(here: Here, tmp_path: Path) -> None:
    path = save(conv_net(), tmp_path, "conv.onnx")
    missing = here("explain", path, "--no-measure", "--json")
    assert missing.status == 1
    (row,) = missing.json["models"]
    assert row["bricks"] == [] and len(row["missing"]) > 0
    assert "no estimate without" in row["error"]
    assert row["error"] in missing.err.replace("bricks: ", "")
    none = here("explain", "squeezenat")
    assert none.status == 1
    assert "squeezenet" in none.complaint


def test_foreign_names_are_shown_and_not_obeyed(here: Here, peaks: Path, tmp_path: Path) -> None:
    copied(peaks, here)
    path = save(chain("Relu", width=4), tmp_path, "[red]\x1b[31m.onnx")
    shown = here("explain", path, "--threads", 1)
    assert shown.status == 0
    assert "\x1b" not in shown.out
    assert "[red]" in shown.out
