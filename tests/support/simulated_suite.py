"""Measures a portable suite with PyTorch on a simulated GPU: SUITE.pyz OUT."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from simulated_gpu import SIMULATED
from simulated_gpu.device import SimulatedGpu

from bricks.backends.torch import portable_runtime
from bricks.backends.torch.device import CudaDevice
from bricks.suite.runner.options import RunOptions
from bricks.suite.runner.suite_run import SuiteData, SuiteRun
from bricks.system.accelerator import Accelerator


class SimulatedRuntime(portable_runtime.TorchRuntime):
    """PyTorch on a host with a simulated GPU, which launches nothing on its own."""

    def has_gpu(self) -> bool:
        return True

    def gpu(self) -> CudaDevice:
        return SimulatedGpu()

    def accelerator(self) -> Accelerator:
        return SIMULATED


def main(suite: str, out: str) -> None:
    data = SuiteData(Path(suite))
    options = RunOptions(Path(out), 1.0, "", None, None)
    made = SimulatedRuntime(device="", threads=None, content=data.content)
    SuiteRun(data, made, options, time.monotonic() + 60).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
