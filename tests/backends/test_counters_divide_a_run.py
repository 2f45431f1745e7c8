"""A runtime's counters of kernels divide the time of a run into the latencies of its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bricks.backends.kernel_counters import CallOverhead, KernelCounters

# The counters below are rounded down to microseconds in each run, and their means once more.
OVERHEAD = CallOverhead(call_s=5e-6, kernel_s=1e-6)


@dataclass
class Runtime:
    """Kernels by their microseconds in a run, and counters as OpenVINO has them."""

    kernels: Mapping[str, float]
    totals: dict[str, int] = field(default_factory=dict)
    runs: int = 0

    def run(self, slower: float = 1.0, outside_us: float = 50.0) -> float:
        """The seconds of a run."""
        self.runs += 1
        for name, micro in self.kernels.items():
            self.totals[name] = self.totals.get(name, 0) + int(slower * micro)
        return (sum(self.kernels.values()) * slower + outside_us) * 1e-6

    def counters(self) -> dict[str, float]:
        return {name: total // self.runs * 1e-6 for name, total in self.totals.items()}


def counters_of(runtime: Runtime, parts: Sequence[Sequence[str]]) -> KernelCounters:
    others = runtime.kernels.keys() - {name for part in parts for name in part}
    return KernelCounters(parts, sorted(others), OVERHEAD, runtime.counters)


def test_the_latency_of_a_part_is_that_of_its_kernels_and_a_call() -> None:
    runtime = Runtime({"a": 40.5, "b": 100.5, "c": 300.5, "added": 20.5})
    counters = counters_of(runtime, [["a", "b"], ["c"]])
    for _ in range(20):
        found = counters.latencies_s(runtime.run())
    assert found == pytest.approx([146e-6, 305.5e-6], rel=0.01)


def test_a_slower_run_is_slower_in_all_its_parts() -> None:
    runtime = Runtime({"a": 40.5, "b": 100.5})
    counters = counters_of(runtime, [["a"], ["b"]])
    for _ in range(20):
        usual = counters.latencies_s(runtime.run())
    slow = counters.latencies_s(runtime.run(slower=1.5))
    assert [s - OVERHEAD.call_s for s in slow] == pytest.approx(
        [1.5 * (s - OVERHEAD.call_s) for s in usual], rel=0.02
    )


def test_noisy_runs_do_not_change_shares() -> None:
    runtime = Runtime({"a": 40.5, "b": 100.5})
    counters = counters_of(runtime, [["a"], ["b"]])
    for run in range(40):
        if run in (0, 5, 6, 20):  # something else runs meanwhile, and b waits for it
            runtime.totals["b"] = runtime.totals.get("b", 0) + 5000
            counters.latencies_s(runtime.run() + 5e-3)
        else:
            found = counters.latencies_s(runtime.run())
    assert found[0] - OVERHEAD.call_s == pytest.approx(40.5e-6, rel=0.1)
    assert found[1] - OVERHEAD.call_s == pytest.approx(100.5e-6, rel=0.1)


def test_time_outside_of_kernels_belongs_to_no_part() -> None:
    found = []
    for outside_us in (10.0, 2000.0):
        runtime = Runtime({"a": 40.5, "b": 100.5})
        counters = counters_of(runtime, [["a"], ["b"]])
        for _ in range(20):
            taken = counters.latencies_s(runtime.run(outside_us=outside_us))
        found.append(taken)
    assert found[0] == pytest.approx(found[1], rel=0.02)


@given(
    st.lists(st.floats(0.0, 500.0), min_size=1, max_size=30),
    st.integers(1, 40),
    st.floats(0.0, 1000.0),
)
def test_parts_never_take_longer_than_the_run(
    kernels: list[float], runs: int, outside_us: float
) -> None:
    runtime = Runtime({str(n): micro for n, micro in enumerate(kernels)})
    counters = counters_of(runtime, [[name] for name in runtime.kernels])
    for _ in range(runs):
        run_s = runtime.run(outside_us=outside_us)
        found = counters.latencies_s(run_s)
        net = [seconds - OVERHEAD.call_s for seconds in found]
        assert all(seconds >= -1e-12 for seconds in net)
        assert sum(net) <= run_s * (1 + 1e-9) + 1e-12


def test_kernels_of_one_name_are_counted_together() -> None:
    runtime = Runtime({"twice": 80.5, "b": 100.5})
    counters = KernelCounters([["twice", "twice"], ["b"]], [], OVERHEAD, runtime.counters)
    for _ in range(20):
        found = counters.latencies_s(runtime.run())
    assert found == pytest.approx([86.5e-6, 106e-6], rel=0.01)
