import os
from pathlib import Path

import pytest

from bricks.system import limits
from bricks.system.limits import (
    MemoryLimit,
    cpu_period_s,
    cpu_quota,
    is_throttled,
    memory_limits,
    throttled_s,
)

GIB = 1 << 30


def lay_out(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


CGROUP = "sys/fs/cgroup"
# By case: files below the root, the quota, and the memory limit with the bytes in use.
CASES: dict[str, tuple[dict[str, str], float | None, MemoryLimit | None]] = {
    "version 2": (
        {
            "proc/self/cgroup": "0::/",
            f"{CGROUP}/cpu.max": "150000 100000",
            f"{CGROUP}/memory.max": str(4 * GIB),
            f"{CGROUP}/memory.current": str(3 * GIB),
            f"{CGROUP}/memory.stat": f"anon 1\ninactive_file {GIB}",
        },
        1.5,
        MemoryLimit(4 * GIB, 2 * GIB),
    ),
    "version 1, at the mount, where the path is the host's": (
        {
            "proc/self/cgroup": "4:memory:/host/path\n1:cpu,cpuacct:/host/path",
            f"{CGROUP}/cpu/cpu.cfs_quota_us": "200000",
            f"{CGROUP}/cpu/cpu.cfs_period_us": "100000",
            f"{CGROUP}/memory/memory.limit_in_bytes": str(2 * GIB),
            f"{CGROUP}/memory/memory.usage_in_bytes": str(GIB),
        },
        2.0,
        MemoryLimit(2 * GIB, GIB),
    ),
    "the tightest group on the way up": (
        {
            "proc/self/cgroup": "0::/outer/inner",
            f"{CGROUP}/outer/cpu.max": "100000 100000",
            f"{CGROUP}/outer/inner/cpu.max": "400000 100000",
        },
        1.0,
        None,
    ),
    "no limit, which is not a large one": (
        {
            "proc/self/cgroup": "4:memory:/host/path\n1:cpu,cpuacct:/host/path\n0::/",
            f"{CGROUP}/cpu.max": "max 100000",
            f"{CGROUP}/memory.max": "max",
            f"{CGROUP}/cpu/cpu.cfs_quota_us": "-1",
            f"{CGROUP}/cpu/cpu.cfs_period_us": "100000",
            f"{CGROUP}/memory/memory.limit_in_bytes": "9223372036854771712",
        },
        None,
        None,
    ),
    "a path that leads out of the mount": (
        {"proc/self/cgroup": "0::/../../else", "sys/fs/else/cpu.max": "100000 100000"},
        None,
        None,
    ),
    "no control groups": ({}, None, None),
}


@pytest.mark.parametrize("name", CASES)
def test_limits_are_read(name: str, tmp_path: Path) -> None:
    files, quota, limit = CASES[name]
    root = lay_out(tmp_path, files)
    assert cpu_quota(root) == quota
    assert memory_limits(root) == ([] if limit is None else [limit])


@pytest.mark.parametrize("text", ["", "nonsense", "max", "100000 0", "1 2 3", "-5 100000"])
def test_a_quota_that_cannot_be_read_is_no_quota(tmp_path: Path, text: str) -> None:
    files = {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": text}
    assert cpu_quota(lay_out(tmp_path, files)) is None


def test_processors_are_counted_where_there_is_no_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert limits.logical_cpus() == (0, 1, 2)


def test_the_period_is_that_of_the_tightest_quota(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "25000 50000"}
    assert cpu_period_s(lay_out(tmp_path, files)) == 0.05


@pytest.mark.parametrize(
    ("files", "stopped_s"),
    [
        (
            {
                "proc/self/cgroup": "0::/a",
                f"{CGROUP}/a/cpu.max": "50000 100000",
                f"{CGROUP}/a/cpu.stat": "usage_usec 7000000\nnr_throttled 3\nthrottled_usec 150000",
            },
            0.15,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu,cpuacct:/host/path",
                f"{CGROUP}/cpu/cpu.cfs_quota_us": "50000",
                f"{CGROUP}/cpu/cpu.cfs_period_us": "100000",
                f"{CGROUP}/cpu/cpu.stat": "nr_periods 9\nthrottled_time 250000000",
            },
            0.25,
        ),
        ({"proc/self/cgroup": "0::/", f"{CGROUP}/cpu.max": "max 100000"}, None),
    ],
)
def test_stops_by_a_quota_are_counted(
    tmp_path: Path, files: dict[str, str], stopped_s: float | None
) -> None:
    root = lay_out(tmp_path, files)
    assert is_throttled(root) is (stopped_s is not None)
    assert throttled_s(root) == pytest.approx(stopped_s or 0.0)
