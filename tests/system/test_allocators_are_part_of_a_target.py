from __future__ import annotations

import pytest

from bricks.system import Runtime
from bricks.system.allocator import allocator_settings


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, None),
        ({"LD_PRELOAD": "/usr/lib/libfoo.so"}, None),
        ({"LD_PRELOAD": "/usr/lib/libfoo.so /opt/libjemalloc.so.2"}, "jemalloc"),
        ({"LD_PRELOAD": "/usr/lib/libtcmalloc_minimal.so.4"}, "tcmalloc_minimal"),
        ({"MALLOC_TRIM_THRESHOLD_": "1"}, "MALLOC_TRIM_THRESHOLD_=1"),
        ({"MALLOC_UNKNOWN": "1"}, None),
        (
            {"GLIBC_TUNABLES": "glibc.pthread.rseq=0:glibc.malloc.hugetlb=1"},
            "GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
        ),
        (
            {"MALLOC_CONF": "dirty_decay_ms:0,abort:true", "MALLOC_ARENA_MAX": "1"},
            "MALLOC_ARENA_MAX=1 MALLOC_CONF=abort:true MALLOC_CONF=dirty_decay_ms:0",
        ),
    ],
)
def test_settings_that_allocators_read_count(environment: dict[str, str], told: str | None) -> None:
    assert allocator_settings(environment) == told


def test_where_nothing_is_allocated_in_calls_no_allocator_is_part_of_a_target() -> None:
    plain = Runtime("torch", "2.13.0", "CPU", 1, "none")
    assert "allocator" not in plain.identity
    assert Runtime(**plain.to_json()) == plain
    other = Runtime("torch", "2.13.0", "CPU", 1, "none", allocator="jemalloc")
    assert other.identity["allocator"] == "jemalloc"
    assert Runtime(**other.to_json()) == other
