"""Facts of this host's NVIDIA GPU, from the libraries of its driver.

The driver's interface for programs (``libcuda``) has the facts of the hardware, that of its tools
(``libnvidia-ml``) the clocks and the limit of power. Both come with every driver, so no runtime is
imported. Must not know any runtime.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

from bricks.errors import BackendError
from bricks.system.accelerator import (
    HARDWARE,
    POWER,
    TEMPERATURE,
    THROTTLES,
    Accelerator,
    AcceleratorState,
)

_CUDA, _NVML = "libcuda.so.1", "libnvidia-ml.so.1"

# Attributes of a device in the interface for programs, and clocks in that of tools.
_CLOCK_KHZ, _MULTIPROCESSORS, _MEMORY_CLOCK_KHZ, _L2_BYTES = 13, 16, 36, 38
_MAJOR, _MINOR = 75, 76
_NVML_SM_CLOCK, _NVML_MEMORY_CLOCK = 1, 2

# Bits of the library for tools that say why clocks are lowered; others are no limits of the card.
_THROTTLES = {
    0x04: POWER, 0x80: POWER, 0x20: TEMPERATURE, 0x40: TEMPERATURE, 0x08: HARDWARE,
}  # fmt: skip

_TEXT_BYTES = 256


class NvidiaDriver:
    """The driver of the first GPU that this process may use.

    ``cuda`` is its library for programs, ``nvml`` that for tools, None without it. Raises
    :class:`BackendError` in one line if there is no GPU that can be used.
    """

    def __init__(self, cuda: Any, nvml: Any | None) -> None:
        self._cuda = cuda
        self._nvml: Any = nvml  # only used with a handle, which it has given
        status = cuda.cuInit(0)
        if status:
            raise _unusable(f"its driver reports error {status}")
        if not self._number(cuda.cuDeviceGetCount):
            raise _unusable("its driver finds none, CUDA_VISIBLE_DEVICES may hide them")
        self._device = self._number(cuda.cuDeviceGet, 0)
        self._handle = self._opened()

    @classmethod
    def of_host(cls) -> NvidiaDriver:
        """Load the libraries of this host; see the class."""
        try:
            cuda = ctypes.CDLL(_CUDA)
        except OSError as exc:
            raise _unusable(f"it has no NVIDIA driver, whose {_CUDA} is not found") from exc
        nvml = None
        with suppress(OSError):
            nvml = ctypes.CDLL(_NVML)
        return cls(cuda, nvml)

    def accelerator(self) -> Accelerator:
        """Return the facts of the GPU."""
        memory = ctypes.c_size_t()
        self._cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), self._device)
        return Accelerator(
            name=self._text(self._cuda.cuDeviceGetName),
            memory_bytes=memory.value,
            l2_bytes=self._attribute(_L2_BYTES),
            multiprocessors=self._attribute(_MULTIPROCESSORS),
            capability=f"{self._attribute(_MAJOR)}.{self._attribute(_MINOR)}",
            clock_hz=self._clock_hz(_NVML_SM_CLOCK, _CLOCK_KHZ),
            memory_clock_hz=self._clock_hz(_NVML_MEMORY_CLOCK, _MEMORY_CLOCK_KHZ),
            power_limit_w=self._power_limit_w(),
        )

    def version(self) -> str | None:
        """Return the version of the driver; None if it is unknown."""
        if self._handle is None:
            return None
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        failed = self._nvml.nvmlSystemGetDriverVersion(text, _TEXT_BYTES)
        return None if failed else text.value.decode()

    def state(self) -> AcceleratorState | None:
        """Return the state of the GPU now; None without the library for tools."""
        if self._handle is None:
            return None
        mhz = self._reading(self._nvml.nvmlDeviceGetClockInfo, _NVML_SM_CLOCK)
        milliwatts = self._reading(self._nvml.nvmlDeviceGetPowerUsage)
        return AcceleratorState(
            None if mhz is None else mhz * 1e6,
            None if milliwatts is None else milliwatts / 1e3,
            self._throttled_by(),
        )

    def _throttled_by(self) -> tuple[str, ...]:
        bits = ctypes.c_ulonglong()
        get = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        if get(self._handle, ctypes.byref(bits)):
            return ()
        reasons = {reason for bit, reason in _THROTTLES.items() if bits.value & bit}
        return tuple(reason for reason in THROTTLES if reason in reasons)

    def _opened(self) -> Any:
        """The GPU in the library for tools, found by its address; None without the library."""
        if self._nvml is None or self._nvml.nvmlInit_v2():
            return None
        handle, address = ctypes.c_void_p(), self._text(self._cuda.cuDeviceGetPCIBusId).encode()
        failed = self._nvml.nvmlDeviceGetHandleByPciBusId_v2(address, ctypes.byref(handle))
        return None if failed else handle

    def _clock_hz(self, clock: int, attribute: int) -> float | None:
        """The highest of a clock; that of the library for programs, if tools do not know it."""
        if self._handle is not None:
            mhz = self._reading(self._nvml.nvmlDeviceGetMaxClockInfo, clock)
            if mhz:
                return mhz * 1e6
        khz = self._attribute(attribute)
        return khz * 1e3 if khz else None

    def _power_limit_w(self) -> float | None:
        if self._handle is None:
            return None
        milliwatts = self._reading(self._nvml.nvmlDeviceGetEnforcedPowerLimit)
        return None if milliwatts is None else milliwatts / 1e3

    def _reading(self, get: Callable[..., int], *arguments: int) -> int | None:
        """A number of the library for tools; None where it does not know."""
        number = ctypes.c_uint()
        failed = get(self._handle, *arguments, ctypes.byref(number))
        return None if failed else number.value

    def _attribute(self, attribute: int) -> int:
        return self._number(self._cuda.cuDeviceGetAttribute, attribute, self._device)

    def _text(self, get: Callable[..., int]) -> str:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        get(text, _TEXT_BYTES, self._device)
        return text.value.decode()

    @staticmethod
    def _number(get: Callable[..., int], *arguments: int) -> int:
        number = ctypes.c_int()
        status = get(ctypes.byref(number), *arguments)
        return 0 if status else number.value


@lru_cache
def nvidia_accelerator() -> Accelerator:
    """Return the GPU of this host; :class:`BackendError` in one line if there is none."""
    return _driver().accelerator()


def nvidia_state() -> AcceleratorState | None:
    """Return the state of the GPU of this host now; None if it is unknown."""
    try:
        return _driver().state()
    except BackendError:
        return None


@lru_cache
def _driver() -> NvidiaDriver:
    return NvidiaDriver.of_host()


def _unusable(reason: str) -> BackendError:
    return BackendError(f"no GPU can be used on this host, {reason}: leave out --device cuda")
