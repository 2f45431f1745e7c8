import os
from pathlib import Path

import pytest

from bricks.system import limits
from bricks.system.limits import MemoryLimit, cpu_quota, memory_limits

GIB = 1 << 30


def lay_out(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_a_host_without_control_groups_has_no_limits(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    assert memory_limits(tmp_path) == []


def test_version_2_limits_are_read(tmp_path: Path) -> None:
    root = lay_out(
        tmp_path,
        {
            "proc/self/cgroup": "0::/",
            "sys/fs/cgroup/cpu.max": "150000 100000",
            "sys/fs/cgroup/memory.max": str(4 * GIB),
            "sys/fs/cgroup/memory.current": str(3 * GIB),
            "sys/fs/cgroup/memory.stat": f"anon 1\ninactive_file {GIB}",
        },
    )
    assert cpu_quota(root) == 1.5
    assert memory_limits(root) == [MemoryLimit(4 * GIB, 2 * GIB)]


def test_the_tightest_group_on_the_way_up_decides(tmp_path: Path) -> None:
    root = lay_out(
        tmp_path,
        {
            "proc/self/cgroup": "0::/outer/inner",
            "sys/fs/cgroup/outer/cpu.max": "100000 100000",
            "sys/fs/cgroup/outer/inner/cpu.max": "400000 100000",
        },
    )
    assert cpu_quota(root) == 1.0


def test_no_limit_is_not_a_large_limit(tmp_path: Path) -> None:
    root = lay_out(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/host/path\n1:cpu,cpuacct:/host/path\n0::/",
            "sys/fs/cgroup/cpu.max": "max 100000",
            "sys/fs/cgroup/memory.max": "max",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        },
    )
    assert cpu_quota(root) is None
    assert memory_limits(root) == []


def test_version_1_limits_are_read_at_the_mount_where_the_path_is_the_hosts(tmp_path: Path) -> None:
    root = lay_out(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/host/path\n1:cpu,cpuacct:/host/path",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2 * GIB),
            "sys/fs/cgroup/memory/memory.usage_in_bytes": str(GIB),
        },
    )
    assert cpu_quota(root) == 2.0
    assert memory_limits(root) == [MemoryLimit(2 * GIB, GIB)]


@pytest.mark.parametrize("text", ["", "nonsense", "max", "100000 0", "1 2 3", "-5 100000"])
def test_a_quota_that_cannot_be_read_is_no_quota(tmp_path: Path, text: str) -> None:
    files = {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": text}
    assert cpu_quota(lay_out(tmp_path, files)) is None


def test_a_group_path_cannot_lead_out_of_the_mount(tmp_path: Path) -> None:
    root = lay_out(
        tmp_path,
        {"proc/self/cgroup": "0::/../../else", "sys/fs/else/cpu.max": "100000 100000"},
    )
    assert cpu_quota(root) is None


def test_processors_are_counted_where_there_is_no_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert limits.logical_cpus() == (0, 1, 2)
