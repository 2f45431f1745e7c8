"""The facts of a GPU come from the libraries of its driver; without one, the error is one line."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from refusals import refused

from bricks.errors import BackendError
from bricks.system import fingerprint
from bricks.system.accelerator import Accelerator, AcceleratorState
from bricks.system.nvidia import NvidiaDriver

NAME, ADDRESS = b"NVIDIA H100 80GB HBM3", b"0000:19:00.0"
FACTS = {13: 1_980_000, 16: 132, 36: 2_619_000, 38: 50 << 20, 75: 9, 76: 0}


class Cuda:
    """The library for programs, with the facts of one GPU."""

    def __init__(self, status: int = 0, count: int = 1) -> None:
        self._status, self._count = status, count

    def cuInit(self, _flags: int) -> int:
        return self._status

    def cuDeviceGetCount(self, count: Any) -> int:
        return _put(count, self._count)

    def cuDeviceGet(self, device: Any, number: int) -> int:
        return _put(device, 7 + number)

    def cuDeviceTotalMem_v2(self, size: Any, device: int) -> int:
        return _put(size, 80 << 30)

    def cuDeviceGetName(self, text: Any, _size: int, device: int) -> int:
        text.value = NAME
        return 0

    def cuDeviceGetPCIBusId(self, text: Any, _size: int, device: int) -> int:
        text.value = ADDRESS
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: int) -> int:
        assert device == 7
        return _put(value, FACTS[attribute])


class Nvml:
    """The library for tools, which knows the GPU by its address."""

    def __init__(self, throttles: int = 0) -> None:
        self._throttles = throttles

    def nvmlDeviceGetClockInfo(self, handle: Any, clock: int, mhz: Any) -> int:
        return _put(mhz, {1: 1410, 2: 1593}[clock])

    def nvmlDeviceGetPowerUsage(self, handle: Any, milliwatts: Any) -> int:
        return _put(milliwatts, 699_500)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, bits: Any) -> int:
        return _put(bits, self._throttles)

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, address: bytes, handle: Any) -> int:
        assert address == ADDRESS
        return _put(handle, 5)

    def nvmlDeviceGetMaxClockInfo(self, handle: Any, clock: int, mhz: Any) -> int:
        assert handle.value == 5
        return _put(mhz, {1: 1755, 2: 1593}[clock])

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any, limit: Any) -> int:
        return _put(limit, 700_000)

    def nvmlSystemGetDriverVersion(self, text: Any, _size: int) -> int:
        text.value = b"580.65.06"
        return 0


def _put(reference: Any, value: int) -> int:
    reference._obj.value = value
    return 0


def test_the_facts_are_those_of_hardware_clocks_and_power() -> None:
    driver = NvidiaDriver(Cuda(), Nvml())
    assert driver.version() == "580.65.06"
    assert driver.accelerator() == Accelerator(
        "NVIDIA H100 80GB HBM3", 80 << 30, 50 << 20, 132, "9.0", 1755e6, 1593e6, 700.0
    )


def test_without_the_library_for_tools_clocks_are_those_of_the_hardware() -> None:
    driver = NvidiaDriver(Cuda(), None)
    facts = driver.accelerator()
    assert (facts.clock_hz, facts.memory_clock_hz) == (1980e6, 2619e6)
    assert (facts.power_limit_w, driver.version()) == (None, None)


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [(0, ()), (0x1 | 0x2, ()), (0x4, ("power",)), (0x80 | 0x40, ("power", "temperature")),
     (0x20, ("temperature",)), (0x8, ("hardware",))],
)  # fmt: skip
def test_the_state_tells_what_lowers_the_clock(bits: int, reasons: tuple[str, ...]) -> None:
    """Idle clocks, and those that an application asked for, are no limits of the card."""
    state = NvidiaDriver(Cuda(), Nvml(bits)).state()
    assert state == AcceleratorState(1410e6, 699.5, reasons)
    assert NvidiaDriver(Cuda(), None).state() is None


@pytest.mark.parametrize(
    ("status", "count", "fact"), [(100, 1, "100"), (0, 0, "CUDA_VISIBLE_DEVICES")]
)
def test_a_driver_without_a_gpu_is_refused(status: int, count: int, fact: str) -> None:
    with refused(BackendError, fact, "--device"):
        NvidiaDriver(Cuda(status, count), Nvml())


def test_a_host_without_a_driver_is_refused() -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        with refused(BackendError, "libcuda.so.1", "--device"):
            NvidiaDriver.of_host()
    else:
        pytest.skip("this host has a driver")


def test_a_host_is_another_system_with_its_accelerator() -> None:
    host, gpu = fingerprint(), NvidiaDriver(Cuda(), Nvml()).accelerator()
    there = host.with_accelerator(gpu)
    assert there.name == "nvidia-h100-80gb-hbm3"
    assert there.accelerator == gpu
    assert host.accelerator is None
    assert there.key != host.key
    assert there.with_accelerator(gpu) is there
