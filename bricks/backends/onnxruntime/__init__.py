"""ONNX Runtime on the processor (:mod:`bricks.backends.onnxruntime.backend`)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bricks.backends.offer import BackendInfo, MemoryUse, Offer
from bricks.backends.onnxruntime.oldest import OLDEST
from bricks.backends.portable import Portable
from bricks.backends.quantising import QuantisationMethod, Quantiser
from bricks.errors import BackendError

if TYPE_CHECKING:
    import onnx

    from bricks.backends.onnxruntime.backend import OnnxRuntimeBackend

_LEVELS = ("all", "extended", "basic", "none")

# The optimiser blocks layouts by the width of vectors (NCHWc), from convolutions and pools on.
_BLOCKED = frozenset(
    "Conv FusedConv ConvInteger QLinearConv ConvTranspose MaxPool AveragePool GlobalMaxPool"
    " GlobalAveragePool Upsample ReorderInput ReorderOutput".split()
)


class OnnxRuntimeOffer(Offer, Quantiser, Portable):
    """ONNX Runtime as it is installed in the environment of bricks."""

    runner: ClassVar[str] = "bricks.backends.onnxruntime.portable_runtime:OnnxRuntimeRuntime"

    def piece(self, proto: onnx.ModelProto) -> Mapping[str, Any]:
        """Return a brick as JSON."""
        from bricks.backends.onnxruntime.pieces import piece_of

        return piece_of(proto)

    def instruments(self, chains: Mapping[str, int]) -> Mapping[str, Any]:
        """Return the reference kernel of exchange, and chains of trivial nodes."""
        from bricks.backends.onnx_instruments import chain, reference_kernels
        from bricks.backends.onnxruntime.pieces import piece_of

        probes = {key: piece_of(chain(length)) for key, length in chains.items()}
        return {"reference": piece_of(reference_kernels()["exchange"]), "probes": probes}

    def describe(self) -> BackendInfo:
        """The version in the user's Python, or else the installed one."""
        found = self.users_python()
        return self.describe_elsewhere() if found is None else self.described_in(found)

    def describe_elsewhere(self) -> BackendInfo:
        """The installed version, with which bricks comes."""
        try:
            version = metadata.version("onnxruntime")
        except metadata.PackageNotFoundError as exc:
            raise BackendError("onnxruntime is not installed: pip install onnxruntime") from exc
        # The platform that the package was built for: the tag of its wheel.
        facts = metadata.distribution("onnxruntime").read_text("WHEEL") or ""
        tags = [
            line.partition(":")[2].strip() for line in facts.splitlines() if line.startswith("Tag:")
        ]
        return BackendInfo(
            self.name,
            version,
            "CPUExecutionProvider",
            timed=True,
            parallel=True,
            levels=_LEVELS,
            build=", ".join(tags) or None,
        )

    def create(
        self, *, threads: int, seed: int, workers: int, optimization: str
    ) -> OnnxRuntimeBackend:
        """A backend whose sessions share a pool of ``threads``."""
        # Measurements are private to the user, and telemetry would write to the disk.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        try:
            from bricks.backends.onnxruntime.backend import OnnxRuntimeBackend
        except ImportError as exc:
            raise BackendError(f"onnxruntime cannot be imported ({exc}): reinstall it") from exc

        return OnnxRuntimeBackend(
            threads=threads, seed=seed, workers=workers, optimization=optimization
        )

    def quantise(
        self,
        source: Path,
        target: Path,
        method: QuantisationMethod,
        samples: Sequence[Mapping[str, Any]],
    ) -> None:
        """Quantise a model with the tool of the package."""
        try:
            from bricks.backends.onnxruntime.quantised import quantise
        except ImportError as exc:
            raise BackendError(f"onnxruntime cannot be imported ({exc}): reinstall it") from exc

        quantise(source, target, method, samples)


OFFER = OnnxRuntimeOffer(
    name="onnxruntime",
    summary="ONNX Runtime, on the processor",
    order=10,
    vectorised=_BLOCKED,
    memory=MemoryUse.SESSION,
    default=True,
    package="onnxruntime",
    oldest=OLDEST,
)
