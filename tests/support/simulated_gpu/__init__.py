"""PyTorch on a GPU that is simulated, in a package of its own: all but the card is real."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.backends.torch import OFFER as PLAIN
from bricks.backends.torch import TorchOffer
from bricks.system.accelerator import CPU, Accelerator

if TYPE_CHECKING:
    from bricks.backends.torch.backend import TorchBackend

SIMULATED = Accelerator("Simulated GPU", 8 << 30, 4 << 20, 16, "0.0", clock_hz=1e9)


class SimulatedOffer(TorchOffer):
    """The runtime of another package."""

    def accelerator(self) -> Accelerator | None:
        return None if self.device == CPU else SIMULATED

    def installed(self) -> tuple[str, str]:
        return PLAIN.installed()

    def create(self, *, threads: int, seed: int, workers: int, optimization: str) -> TorchBackend:
        if self.device == CPU:
            return super().create(
                threads=threads, seed=seed, workers=workers, optimization=optimization
            )
        from simulated_gpu.backend import SimulatedBackend
        from simulated_gpu.device import SimulatedGpu

        return SimulatedBackend(self.name, threads=threads, seed=seed, device=SimulatedGpu())


OFFER = SimulatedOffer(
    name="torch-simulated",
    summary="PyTorch with a simulated GPU",
    accepts=PLAIN.accepts,
    compiled=False,
    variant=True,
)
