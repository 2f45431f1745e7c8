import importlib
import json
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from bricks.system import (
    Runtime,
    System,
    Target,
    available_memory_bytes,
    fingerprint,
    physical_cores,
)
from bricks.system.limits import MemoryLimit
from bricks.system.processor import Processor, count_cores, read_processor

# The package exports a function of the same name, which hides the module from plain imports.
MODULE = importlib.import_module("bricks.system.fingerprint")
IDENTITY = {
    "cpu", "cpu_vendor", "cpu_family", "cpu_model", "cpu_stepping", "instruction_sets",
    "instruction_sets_digest", "cache_bytes", "physical_cores", "logical_cpus", "cpu_quota",
    "memory_gib", "memory_limit_gib", "architecture", "os",
}  # fmt: skip
X86 = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
model name\t: Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz
stepping\t: 7
microcode\t: 0x5003605
flags\t\t: fpu sse4_2 avx avx2 avx512f smep nonstop_tsc hypervisor

processor\t: 1
model name\t: another
"""
ARM = """processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd sve bf16 i8mm cpuid
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: 0xd40
CPU revision\t: 1
"""


def host(root: Path, cpuinfo: str) -> Path:
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(cpuinfo)
    return root


def with_processor(monkeypatch: pytest.MonkeyPatch, **facts: Any) -> None:
    monkeypatch.setattr(MODULE, "read_processor", lambda root: Processor(**facts))


def test_the_same_host_has_the_same_key_twice() -> None:
    assert fingerprint().key == fingerprint().key
    assert fingerprint("mine").key == fingerprint("yours").key
    assert fingerprint("mine").name == "mine"


def test_the_identity_has_all_its_facts_and_is_json() -> None:
    system = fingerprint()
    assert set(system.identity) == IDENTITY
    assert json.loads(json.dumps(system.to_json()))["key"] == system.key


def test_another_processor_is_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    with_processor(monkeypatch, name="A", flags=frozenset({"avx2"}))
    first = fingerprint()
    with_processor(monkeypatch, name="A", flags=frozenset({"avx2", "avx512f"}))
    assert fingerprint().key != first.key


def test_flags_that_the_kernel_makes_up_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    with_processor(monkeypatch, flags=frozenset({"avx2"}))
    first = fingerprint()
    with_processor(monkeypatch, flags=frozenset({"avx2", "nonstop_tsc", "smep"}))
    assert fingerprint().key == first.key


def test_a_container_with_less_is_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "cpu_quota", lambda root: None)
    first = fingerprint()
    monkeypatch.setattr(MODULE, "cpu_quota", lambda root: 1.5)
    assert fingerprint().key != first.key


def test_the_host_is_not_named() -> None:
    text = json.dumps(fingerprint().to_json()).lower()
    node = platform.node().lower()
    assert "boot" not in text
    assert len(node) < 4 or node not in text


def test_facts_that_cannot_be_read_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "ROOT", host(tmp_path, ""))
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: None)
    system = fingerprint()
    absent = {name for name, fact in system.identity.items() if fact is None}
    assert {"cpu", "cpu_vendor", "cpu_model", "physical_cores", "cpu_quota"} <= absent
    assert system.identity["instruction_sets_digest"] is None
    assert system.identity["cache_bytes"] == {"L1d": None, "L2": None, "L3": None}
    assert system.recorded["governor"] is None
    assert system.name.startswith(platform.machine().lower().replace("_", "-"))
    assert physical_cores() >= 1


def test_an_x86_processor_is_read(tmp_path: Path) -> None:
    processor = read_processor(host(tmp_path, X86))
    assert processor.name == "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"
    assert (processor.vendor, processor.family, processor.model) == ("GenuineIntel", "6", "85")
    assert (processor.stepping, processor.microcode) == ("7", "0x5003605")
    assert processor.notable == ("avx", "avx2", "avx512f", "sse4_2")
    assert processor.virtual is True


def test_an_arm_processor_is_read(tmp_path: Path) -> None:
    processor = read_processor(host(tmp_path, ARM))
    assert processor.name is None
    assert (processor.vendor, processor.family, processor.model) == ("0x41", "8", "0xd40")
    assert processor.stepping == "0x1r1"
    assert processor.notable == ("asimd", "bf16", "i8mm", "sve")
    assert processor.virtual is None


def test_caches_are_read_in_bytes(tmp_path: Path) -> None:
    root = host(tmp_path, X86)
    kinds = [("1", "Data", "32K"), ("1", "Instruction", "48K"), ("2", "Unified", "1024K")]
    for number, (level, kind, size) in enumerate([*kinds, ("3", "Unified", "junk")]):
        folder = root / f"sys/devices/system/cpu/cpu0/cache/index{number}"
        folder.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n")
    assert dict(read_processor(root).cache_bytes) == {"L1d": 32768, "L2": 1 << 20, "L3": None}


def test_threads_of_one_core_are_one_core(tmp_path: Path) -> None:
    for cpu, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        topology = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(siblings + "\n")
    assert count_cores((0, 1, 2, 3), tmp_path) == 2
    assert count_cores((0, 2), tmp_path) == 1
    assert count_cores((0, 4), tmp_path) is None


@pytest.mark.parametrize(
    ("cpu", "name"),
    [
        ("AMD EPYC", "amd-epyc-2c"),
        ("AMD EPYC 7B13 64-Core Processor", "amd-epyc-7b13-2c"),
        ("Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", "intel-xeon-platinum-8259cl-2c"),
        ("Intel(R) Core(TM) i7-1065G7 CPU @ 1.30GHz", "intel-core-i7-1065g7-2c"),
        ("AMD Ryzen 7 5800H with Radeon Graphics", "amd-ryzen-7-5800h-2c"),
        ("Apple M2", "apple-m2-2c"),
        ("***", "unknown-2c"),
    ],
)
def test_a_system_is_called_after_its_processor(
    cpu: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_processor(monkeypatch, name=cpu)
    monkeypatch.setattr(MODULE, "count_cores", lambda cpus, root: 2)
    assert fingerprint().name == name


@pytest.mark.parametrize(
    ("vendor", "family", "model", "name"),
    [
        ("AuthenticAMD", "25", "17", "amd-epyc-zen4-2c"),
        ("AuthenticAMD", "25", "1", "amd-epyc-zen3-2c"),
        ("AuthenticAMD", "26", "2", "amd-epyc-zen5-2c"),
        ("AuthenticAMD", "23", "49", "amd-epyc-23-49-2c"),
        ("AuthenticAMD", None, None, "amd-epyc-2c"),
    ],
)
def test_a_brand_alone_is_followed_by_the_generation(
    vendor: str, family: str | None, model: str | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_processor(monkeypatch, name="AMD EPYC", vendor=vendor, family=family, model=model)
    monkeypatch.setattr(MODULE, "count_cores", lambda cpus, root: 2)
    assert fingerprint().name == name


@pytest.mark.parametrize(("quota", "cores"), [(None, 4), (2.9, 2), (0.5, 1), (64.0, 4)])
def test_threads_are_no_more_than_the_quota_pays_for(
    quota: float | None, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "logical_cpus", lambda: tuple(range(8)))
    monkeypatch.setattr(MODULE, "count_cores", lambda cpus, root: 4)
    monkeypatch.setattr(MODULE, "cpu_quota", lambda root: quota)
    assert physical_cores() == cores


def test_memory_is_what_the_container_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "memory_limits", lambda root: [])
    assert 0 < available_memory_bytes() <= psutil.virtual_memory().total
    limits = [MemoryLimit(5000, 1000), MemoryLimit(9000, 6000)]
    monkeypatch.setattr(MODULE, "memory_limits", lambda root: limits)
    assert available_memory_bytes() == 3000
    monkeypatch.setattr(MODULE, "memory_limits", lambda root: [MemoryLimit(10, 20)])
    assert available_memory_bytes() == 0


def test_without_proc_facts_come_from_py_cpuinfo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cpuinfo

    facts = {"brand_raw": "Apple M2", "flags": ["neon"], "l2_cache_size": 4096, "model": ""}
    monkeypatch.setattr(cpuinfo, "get_cpu_info", lambda: facts)
    processor = read_processor(tmp_path)
    assert (processor.name, processor.model, processor.notable) == ("Apple M2", None, ("neon",))
    assert dict(processor.cache_bytes) == {"L1d": None, "L2": 4096, "L3": None}

    def refuse() -> None:
        raise Exception("unknown platform")

    monkeypatch.setattr(cpuinfo, "get_cpu_info", refuse)
    assert read_processor(tmp_path) == Processor()


def test_the_width_of_vectors_decides_which_hosts_execute_the_same_graphs() -> None:
    def system(sets: list[str] | None, digest: str, architecture: str = "x86_64") -> System:
        facts = {"instruction_sets": sets, "instruction_sets_digest": digest}
        return System("host", {**facts, "architecture": architecture}, {})

    one = system(["avx", "avx2", "avx512f"], "a")
    other = system(["amx_tile", "avx", "avx2", "avx512f"], "b")
    narrow = system(["avx", "avx2"], "c")
    arm, other_arm = system(["asimd"], "d", "aarch64"), system(["asimd", "sve"], "e", "aarch64")
    runtime = Runtime("onnxruntime", "1", "CPU", 1, "none")
    assert Target(one, runtime).executes_like(Target(other, replace(runtime, threads=2)))
    assert not Target(one, runtime).executes_like(Target(narrow, runtime))
    assert not Target(one, runtime).executes_like(Target(other, replace(runtime, version="2")))
    assert not Target(arm, runtime).executes_like(Target(other_arm, runtime))
    assert Target(arm, runtime).executes_like(Target(arm, runtime))


@pytest.mark.parametrize(("quota", "ending"), [(None, "-4c"), (0.5, "-0.5c"), (8.0, "-4c")])
def test_a_quota_below_the_cores_is_in_the_name(
    quota: float | None, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "count_cores", lambda cpus, root: 4)
    monkeypatch.setattr(MODULE, "cpu_quota", lambda root: quota)
    assert fingerprint().name.endswith(ending)
