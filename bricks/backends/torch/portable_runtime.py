"""PyTorch for the program in a portable suite: on the processor, or on a GPU with CUDA.

Real steps are those of a program whose code came with the suite. Of tiny programs, the calls are
observed where they run, without a recording. Must not know the store, how bricks are chosen, nor
what real steps are compared with.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bricks.backends.heating import Heating
from bricks.backends.portable import (
    GroupWalk,
    HostRuntime,
    OutOfMemory,
    PortableRuntime,
    RoundConditions,
    SampledRound,
)
from bricks.backends.torch.calls import tensors_in
from bricks.backends.torch.device import PROCESSOR, CudaDevice, Device, launch_seconds
from bricks.backends.torch.entry import program
from bricks.backends.torch.portable_walk import loaded_group
from bricks.backends.torch.run.call_sequences import REFERENCE, chain_of, reference_workload
from bricks.backends.torch.run.tiny_programs import (
    MODULES,
    PhasedCall,
    PhaseProbes,
    TinySteps,
    tiny_program,
)
from bricks.errors import BackendError
from bricks.graph.call import INFERENCE, evicted_share, writes
from bricks.system.accelerator import CPU, CUDA, Accelerator
from bricks.system.fingerprint import physical_cores
from bricks.units.sample import Sample

# Runs of a chain of trivial calls, and samples of each probe.
_CHAINS, _SAMPLES = 5, 2

_STEP_WARM_UPS, _STEP_SAMPLES = 2, 5

_WARM_UPS = 2
# Calls of these namespaces compute nothing.
_IDLE = frozenset({"profiler"})


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
        # The values of a piece are those of a worker with the seed 0.
        seed = zlib.crc32(f"0/{REFERENCE}".encode())
        reference = reference_workload(torch.Generator().manual_seed(seed))
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
            for name, taken_s in launch_seconds(self.device).items():
                positive = [Sample(s) for s in taken_s if s > 0]
                if positive:
                    yield SampledRound(self._keys["device"][name], positive)
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

    def _phase_samples(self, phase: str, part: str, kind: str) -> list[Sample]:
        training = phase != INFERENCE
        if training not in self._probes:
            self._probes[training] = observed_probes(training, self.device)
        probes = self._probes[training]
        return [Sample(probes.sample(phase, part, kind)) for _ in range(_SAMPLES)]


class RealSteps:
    """The program of an ``entry`` with its ``options``, as ``code`` says, on ``device``."""

    def __init__(self, code: Mapping[str, Any], folder: str, device: Device) -> None:
        torch.manual_seed(0)
        self._device = device
        self._heating = Heating()
        self._program = program(code["entry"], folder, code["options"], device)

    def rounds(self, key: str, conditions: RoundConditions) -> Iterator[SampledRound]:
        """A round of steps one by one; on a GPU each is waited for, and has its kernels."""
        try:
            conditions.begin(self._warm_up)
            samples = [self._sample() for _ in range(_STEP_SAMPLES)]
            known = conditions.end()
            if isinstance(self._device, CudaDevice):
                kernels = self._device.kernels([self._watched])[0]
                samples = [replace(sample, kernels=tuple(kernels)) for sample in samples]
        except (MemoryError, torch.OutOfMemoryError) as exc:
            raise OutOfMemory(str(exc)) from exc
        yield SampledRound(key, samples, known)

    def _warm_up(self) -> None:
        for _ in range(_STEP_WARM_UPS):
            self._program.step()
        self._heating.heat(self._sample, self._device.state)

    def _sample(self) -> Sample:
        self._device.synchronise()
        started = time.perf_counter_ns()
        self._program.step()
        self._device.synchronise()
        return Sample((time.perf_counter_ns() - started) * 1e-9)

    def _watched(self) -> None:
        with self._device.sampled():
            self._program.step()
            self._device.synchronise()


class ObservedCall:
    """A call of ``operator``, whose tensors are named by what they view of which storage."""

    def __init__(self, operator: Any, arguments: Any, outputs: Sequence[Hashable]) -> None:
        self._operator, self._arguments, self._outputs = operator, arguments, outputs

    def run(self, values: dict[Hashable, Any]) -> int:
        """Make the call on ``values`` and add its outputs to them; nanoseconds of the operator."""
        clock = time.perf_counter_ns
        positional = [_valued(each, values) for each in self._arguments[0]]
        named = {name: _valued(each, values) for name, each in self._arguments[1].items()}
        operator = self._operator
        started = clock()
        result = operator(*positional, **named)
        taken_ns = clock() - started
        for name, tensor in zip(self._outputs, tensors_in(result), strict=False):
            values[name] = tensor
        return taken_ns


class _Named:
    """The place of a tensor among arguments."""

    def __init__(self, name: Hashable) -> None:
        self.name = name


class CallObserver(TorchDispatchMode):
    """Observes the calls of a step; ``phase`` is the one that runs."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = ""
        self.calls: list[tuple[str, ObservedCall, set[Hashable]]] = []
        self.begins: dict[Hashable, torch.Tensor] = {}
        self.displaced: dict[str, float] = {}
        self._made: set[Hashable] = set()
        self._alive: list[torch.Tensor] = []  # so that no storage is used again

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Observe one call."""
        named = kwargs or {}
        if func.namespace in _IDLE:
            return func(*args, **named)
        read = [t for t in tensors_in([*args, *named.values()]) if t is not None]
        names = {_name(tensor) for tensor in read}
        for tensor in read:
            if _name(tensor) not in self._made:
                self.begins.setdefault(_name(tensor), tensor.detach().clone())
        arguments = [_named(each) for each in args], {k: _named(v) for k, v in named.items()}
        result = func(*args, **named)
        returned = list(tensors_in(result))
        made = [t for t in returned if t is not None]
        self._alive += [*read, *made]
        outputs = [None if tensor is None else _name(tensor) for tensor in returned]
        self._made.update(outputs)
        self.calls.append((self.phase, ObservedCall(func, arguments, outputs), names))
        storages = {tensor.untyped_storage()._cdata for tensor in read}
        new = [tensor for tensor in made if tensor.untyped_storage()._cdata not in storages]
        touched = 0
        if new or writes(str(func).partition(".")[2]):
            distinct = {_name(tensor): tensor.nbytes for tensor in [*read, *new]}
            touched = sum(distinct.values())
        before = self.displaced.get(self.phase, 0.0)
        self.displaced[self.phase] = before + evicted_share(touched)
        return result

    def phased(self) -> list[PhasedCall]:
        """The calls, each with the names of values that none reads later."""
        last = {name: n for n, (_, _, names) in enumerate(self.calls) for name in names}
        freed: dict[int, list[Hashable]] = {}
        for name, number in last.items():
            freed.setdefault(number, []).append(name)
        return [(phase, call, freed.get(n, ())) for n, (phase, call, _) in enumerate(self.calls)]


def observed_steps(which: str, training: bool, device: Device) -> TinySteps:
    """Run a tiny program, observe its calls, and return its steps."""
    with device.default():
        program = tiny_program(which, training=training)
    for _ in range(_WARM_UPS):
        program.step()
    observer = CallObserver()

    def mark(phase: str) -> None:
        observer.phase = phase

    with observer:
        program.step(mark)
    return TinySteps(program, observer.phased(), observer.begins, observer.displaced, device)


def observed_probes(training: bool, device: Device) -> PhaseProbes:
    """Return the probes of all phases of training steps, or of inference."""
    made = {name: observed_steps(name, training, device) for name in MODULES}
    return PhaseProbes(made, training)


def _name(tensor: torch.Tensor) -> Hashable:
    view = tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype
    return (tensor.untyped_storage()._cdata, *view)


def _named(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return _Named(_name(argument))
    if isinstance(argument, (list, tuple)):
        return [_named(each) for each in argument]
    return argument


def _valued(argument: Any, values: Mapping[Hashable, Any]) -> Any:
    if isinstance(argument, _Named):
        return values[argument.name]
    return [_valued(each, values) for each in argument] if isinstance(argument, list) else argument
