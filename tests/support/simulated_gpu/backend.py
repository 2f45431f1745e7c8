"""The backend of the simulated GPU, which has all operators of processors."""

from __future__ import annotations

import onnx

from bricks.backends.base import ExecutedGraph
from bricks.backends.torch.backend import TorchBackend
from bricks.backends.torch.gpu_backend import TorchGpuBackend


class SimulatedBackend(TorchGpuBackend):
    """PyTorch on the simulated GPU."""

    def executed(self, proto: onnx.ModelProto) -> ExecutedGraph:
        return TorchBackend.executed(self, proto)
