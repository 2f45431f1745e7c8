"""A GPU whose kernels the processor computes: its trace is made of that of the processor.

Each call of ATen that is called by no other launches one kernel, unless it only makes a view. The
GPU runs kernels in order, each twice as long as the call took.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.profiler import ProfilerActivity

from bricks.backends.torch.device import CudaDevice
from bricks.system.accelerator import AcceleratorState

LATENCY_US, SLOWER = 8.0, 2.0

VIEWS = ("aten::t", "aten::view", "aten::transpose", "aten::expand", "aten::as_strided")


class SimulatedGpu(CudaDevice):
    """The device, whose tensors PyTorch has on the processor."""

    kind = "cpu"
    activities = (ProfilerActivity.CPU,)

    def synchronise(self) -> None:
        """Its work is done when it is launched."""

    def occupy(self) -> None:
        """It is busy with what was launched."""

    def random_states(self) -> list[Any]:
        return super(CudaDevice, self).random_states()

    def restore(self, random_states: Sequence[Any]) -> None:
        super(CudaDevice, self).restore(random_states)

    def state(self) -> AcceleratorState | None:
        """What it is throttled by, as the environment says: ``SIMULATED_THROTTLE=power``."""
        reason = os.environ.get("SIMULATED_THROTTLE")
        return AcceleratorState(1e9, 100.0, (reason,) if reason else ())

    def events(self, run: Callable[[], None]) -> Sequence[Mapping[str, Any]]:
        found = list(super().events(run))
        calls = [e for e in found if e.get("cat") == "cpu_op" and e["name"].startswith("aten::")]
        end_us = busy_us = 0.0
        for number, call in enumerate(sorted(calls, key=lambda e: e["ts"])):
            if call["ts"] < end_us:  # another call has called it
                continue
            end_us = call["ts"] + call["dur"]
            if call["name"] in VIEWS:
                continue
            about = {"correlation": number, "stream": 7}
            begin_us = max(call["ts"] + LATENCY_US, busy_us)
            busy_us = begin_us + SLOWER * call["dur"]
            kernel = {"ts": begin_us, "dur": SLOWER * call["dur"], "name": f"{call['name']}_kernel"}
            launch = {"ts": call["ts"], "dur": 1.0, "name": "cudaLaunchKernel"}
            found.append({"ph": "X", "cat": "cuda_runtime", "args": about, **launch})
            found.append({"ph": "X", "cat": "kernel", "args": about, **kernel})
        return found
