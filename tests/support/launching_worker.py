"""A worker of the fake runtime with a device: each run launches two kernels on it."""

from __future__ import annotations

from bricks.backends.fake.backend import FakeBoundModel
from bricks.measure.worker import worker
from bricks.units.sample import Kernel, Sample

# Seconds of the second kernel; the first takes half as long as the host.
COPY_S = 3e-6


def main() -> None:
    """Serve as the worker of the fake runtime does."""
    original = FakeBoundModel.sample

    def launching(bound: FakeBoundModel) -> Sample:
        host_s = original(bound).host_s
        return Sample(host_s, (Kernel("compute", host_s / 2), Kernel("copy", COPY_S)))

    FakeBoundModel.sample = launching  # type: ignore[method-assign]
    worker.main()
