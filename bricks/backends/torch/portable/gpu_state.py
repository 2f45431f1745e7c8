"""Clocks, power, temperature and throttling of a GPU, from the driver's library for tools.

Must not know what runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
# Numbers of clocks and of the sensor, as the library has them.
_SM_CLOCK, _MEMORY_CLOCK, _SENSOR = 1, 2, 0


def gpu_state() -> Mapping[str, Any]:
    """Return the state of the first GPU now; empty without the library."""
    opened = _opened()
    if opened is None:
        return {}
    library, device = opened
    facts = {
        "clock_hz": _scaled(library.nvmlDeviceGetClockInfo, 1e6, device, _SM_CLOCK),
        "memory_clock_hz": _scaled(library.nvmlDeviceGetClockInfo, 1e6, device, _MEMORY_CLOCK),
        "watts": _scaled(library.nvmlDeviceGetPowerUsage, 1e-3, device),
        "celsius": _scaled(library.nvmlDeviceGetTemperature, 1, device, _SENSOR),
        "throttled": _reasons(library, device),
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


@lru_cache
def _opened() -> tuple[Any, Any] | None:
    """The library, and its handle of the first GPU."""
    try:
        library: Any = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    device = ctypes.c_void_p()
    failed = library.nvmlInit_v2() or library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
    return None if failed else (library, device)


def _scaled(get: Any, factor: float, *arguments: Any) -> float | None:
    number = ctypes.c_uint()
    failed = get(*arguments, ctypes.byref(number))
    return None if failed else number.value * factor


def _reasons(library: Any, device: Any) -> int | None:
    """The bits of the reasons why clocks are lower than they could be."""
    bits = ctypes.c_ulonglong()
    failed = library.nvmlDeviceGetCurrentClocksThrottleReasons(device, ctypes.byref(bits))
    return None if failed else bits.value
