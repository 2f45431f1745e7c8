"""Where a machine has two states, a small probe set of bricks is measured in each of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Here, rounds
from factories import mlp, save

from bricks import Bench
from bricks.measure.machine_states import learn_states, several_states, size_facts
from bricks.measure.probe_set import probe_set, probe_set_keys, probe_set_walk
from bricks.samples.machine_state import states
from bricks.samples.measurement import Measurement


def models(folder: Path) -> list[Path]:
    """Three models that share no brick."""
    return [
        save(mlp(widths=(8 * i, 8 * i, 4 * i), prefix=f"m{i}_", seed=i), folder, f"model{i}.onnx")
        for i in (1, 3, 5)
    ]


def states_of_probe_set(cache: Path) -> list[int]:
    """In how many states each brick of the probe set was measured."""
    with Bench(cache, runtime="fake") as bench:
        found = bench.store.measurements.results(bench.target.key, probe_set_keys())
    measured = [m for m in found.values() if isinstance(m, Measurement)]
    assert len(measured) == len(found)
    return [len(states(r.state_s for r in m.quiet_rounds)) for m in measured]


def test_the_probe_set_is_measured_once_in_each_state_of_a_machine_that_has_several(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = models(tmp_path)
    here("measure", first)
    assert states_of_probe_set(here.cache) == []  # one state: nothing to learn
    monkeypatch.setenv("BRICKS_FAKE_STATE", "2")
    done = here("measure", second, "--json").json
    assert states_of_probe_set(here.cache) == [1] * len(probe_set())
    assert (done["remeasured_bricks"], done["failures"]) == (0, [])  # no model needs the probe set
    monkeypatch.setenv("BRICKS_FAKE_STATE", "1")
    here("measure", third)
    assert states_of_probe_set(here.cache) == [2] * len(probe_set())
    kept = rounds(here.cache, "")
    monkeypatch.setenv("BRICKS_FAKE_STATE", "2")
    here("measure", *models(tmp_path))
    assert rounds(here.cache, "") == kept  # known in both by now
    with Bench(here.cache, runtime="fake") as bench:
        learned = learn_states(bench.store, bench.target.key)
    assert learned.learned_from == len(probe_set())


def test_a_moment_of_drift_is_no_state() -> None:
    assert not several_states({1e-4: 1000, 2e-4: 10}, 1e-4)
    assert not several_states({1e-4: 100_000, 2e-4: 100}, 1e-4)
    assert not several_states({1e-4: 1000, 1.2e-4: 1000}, 1e-4)
    assert several_states({1e-4: 1000, 2e-4: 30}, 1e-4)
    assert several_states({1e-4: 10}, 1e-4) is False
    assert several_states({1e-4: 40, 2e-4: 1}, 2e-4)


def test_the_probe_set_spans_kernels_and_sizes() -> None:
    facts = size_facts({brick.key: brick for brick in probe_set()})
    assert len(facts) == len(probe_set()) == len(set(probe_set_keys()))
    kernels = {each.kernel for each in facts.values()}
    assert {"convolution pointwise", "convolution dense", "convolution depthwise"} <= kernels
    assert {"product", "Add", "Mul", "Softmax", "Transpose", "ReduceMean"} <= kernels
    moved = sorted(each.exchanged_bytes for each in facts.values())
    assert moved[0] < 1e3 and moved[-1] > 1e7
    # Together no more work than some tens of milliseconds.
    assert sum(brick.flops or 0 for brick in probe_set()) < 3e9
    assert sum(brick.bytes_moved for brick in probe_set()) < 1e8


def test_a_brick_of_the_probe_set_reads_where_the_one_before_it_wrote() -> None:
    walk = probe_set_walk()
    for one, other in zip(walk.steps, walk.steps[1:], strict=False):
        assert other.inputs[0] == one.outputs[0]
        assert other.outputs[0] == one.inputs[0]
    left = probe_set_walk(avoid=probe_set_keys()[:3])
    assert [step.key for step in left.steps] == list(probe_set_keys()[3:])
    for step, load in zip(walk.steps, walk.loads, strict=True):
        brick = next(brick for brick in probe_set() if brick.key == step.key)
        ends = [
            offset + type_.size_bytes
            for offsets, types in ((step.inputs, brick.inputs), (step.outputs, brick.outputs))
            for offset, type_ in zip(offsets, types.values(), strict=True)
            if offset is not None
        ]
        assert max(ends) <= walk.region_bytes
        assert load.weight_bytes == brick.numeric_weight_bytes
