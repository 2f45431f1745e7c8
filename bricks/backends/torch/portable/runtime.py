"""PyTorch for the program in a portable suite: on the processor, or on a GPU with CUDA.

Must not know the store, nor how bricks are chosen.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from bricks.backends.portable import GroupWalk, HostRuntime, PortableRuntime, SampledRound
from bricks.backends.portable_walk import RoundConditions
from bricks.backends.torch.call_sequences import REFERENCE, chain_of, reference_workload
from bricks.backends.torch.devices.cuda import CudaDevice
from bricks.backends.torch.devices.device import PROCESSOR, Device
from bricks.backends.torch.devices.launches import launch_seconds
from bricks.backends.torch.portable.observed_steps import observed_probes
from bricks.backends.torch.portable.real_steps import RealSteps
from bricks.backends.torch.portable.walked import loaded_group
from bricks.errors import BackendError
from bricks.graph.program_phases import INFERENCE
from bricks.system.accelerator import CPU, CUDA, Accelerator
from bricks.system.fingerprint import physical_cores
from bricks.units.sample import Sample

if TYPE_CHECKING:
    from bricks.backends.torch.phase_probes import PhaseProbes

# Runs of a chain of trivial calls, and samples of each probe.
_CHAINS, _SAMPLES = 5, 2


class TorchRuntime(PortableRuntime):
    """PyTorch on ``device``, ``cpu`` or ``cuda``; empty: a GPU if there is one."""

    def __init__(self, *, device: str, threads: int | None, content: Mapping[str, Any]) -> None:
        chosen = device or (CUDA if self.has_gpu() else CPU)
        if chosen == CUDA and not self.has_gpu():
            raise BackendError(
                f"PyTorch {torch.__version__} finds no GPU here: leave out --device cuda, or run"
                " the suite with a Python whose PyTorch is built for CUDA"
            )
        self._threads = threads or (physical_cores() if chosen == CPU else 1)
        torch.set_flush_denormal(True)
        torch.set_num_threads(self._threads)
        self.device: Device = self.gpu() if chosen == CUDA else PROCESSOR
        self._on_gpu = isinstance(self.device, CudaDevice)
        reference = reference_workload(_generator(REFERENCE))
        self._conditions = RoundConditions(
            None if self._on_gpu else reference.sample, self.device.state
        )
        self._programs: dict[str, RealSteps] = {}
        self._keys = content["probes"]
        self._chains = [(key, chain_of(length)) for key, length in self._keys["chains"].items()]
        self._phases = content["phases"]
        self._probes: dict[bool, PhaseProbes] = {}

    def has_gpu(self) -> bool:
        """Whether PyTorch can use a GPU here."""
        return bool(torch.cuda.is_available())

    def gpu(self) -> CudaDevice:
        """Return the GPU."""
        return CudaDevice()

    def facts(self) -> HostRuntime:
        """Return the version of PyTorch, and the facts of the GPU."""
        accelerator = self.accelerator()
        provider = (CUDA if self._on_gpu else CPU).upper()
        return HostRuntime(str(torch.__version__), provider, self._threads, accelerator)

    def accelerator(self) -> Accelerator | None:
        """Return the facts of the GPU, from its driver; None for the processor."""
        if not self._on_gpu:
            return None
        from bricks.system.nvidia import nvidia_accelerator

        return nvidia_accelerator()

    def group(self, group: Mapping[str, Any], pieces: Mapping[str, Any]) -> GroupWalk:
        """Load a group."""
        with torch.no_grad():
            return loaded_group(group, pieces, self.device, self._conditions)

    def real_steps(self, program: Mapping[str, Any], folder: str) -> Iterator[SampledRound]:
        """Run real steps of a program."""
        digest = program["digest"]
        if digest not in self._programs:
            self._programs[digest] = RealSteps(program["code"], folder, self.device)
        yield from self._programs[digest].rounds(digest, self._conditions)

    def probes(self) -> Iterator[SampledRound]:
        """A round of each chain, of launches, and of each part of the overhead of phases."""
        yield from self._observed(self._chain_samples)
        if isinstance(self.device, CudaDevice):
            yield from self._launches(self.device)
        yield from self._observed(self._samples_of_phases)

    def _observed(self, take: Callable[[], Mapping[str, list[Sample]]]) -> Iterator[SampledRound]:
        self._conditions.begin()
        samples = take()
        observed = self._conditions.end()
        for key, own in samples.items():
            yield SampledRound(key, own, observed)

    def _chain_samples(self) -> dict[str, list[Sample]]:
        runs = {key: [chain.sample() for _ in range(_CHAINS)] for key, chain in self._chains}
        return {key: of[-_SAMPLES:] for key, of in runs.items()}

    def _samples_of_phases(self) -> dict[str, list[Sample]]:
        return {
            key: self._phase_samples(phase, part, kind)
            for phase in self._phases
            for part, pair in self._keys["phases"][phase].items()
            for kind, key in zip(("step", "calls"), pair, strict=True)
        }

    def _launches(self, device: CudaDevice) -> Iterator[SampledRound]:
        for name, taken_s in launch_seconds(device).items():
            positive = [Sample(s) for s in taken_s if s > 0]
            if positive:
                yield SampledRound(self._keys["device"][name], positive)

    def _phase_samples(self, phase: str, part: str, kind: str) -> list[Sample]:
        training = phase != INFERENCE
        if training not in self._probes:
            self._probes[training] = observed_probes(training, self.device)
        probes = self._probes[training]
        return [Sample(probes.sample(phase, part, kind)) for _ in range(_SAMPLES)]


def _generator(key: str) -> torch.Generator:
    """The generator of the values of a piece, as of a worker with the seed 0."""
    return torch.Generator().manual_seed(zlib.crc32(f"0/{key}".encode()))
