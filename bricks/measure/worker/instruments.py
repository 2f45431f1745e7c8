"""Instruments of a worker's device: reference kernels, eviction of the caches, the machine's state.

The kernels and the memory that evicts are loaded when walks first use them. The conditions watch
observes the machine around passes, and who else used the processors. Reference kernels take some
milliseconds and are timed again only after ten times as long, so that they take a tenth of the time
of measuring at most. The memory that evicts (see ``backends/instruments``) is kept from one walk to
the next: on a virtual machine, filling new memory as large as the caches can take half a second.
Must not know any walk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import numpy as np

from bricks.backends.base import Binding, BoundModel
from bricks.backends.instruments import ROW_BYTES
from bricks.backends.kernel_timing import KernelTimer
from bricks.backends.onnx_instruments import KERNEL, reference_kernels
from bricks.errors import BackendError
from bricks.measure.protocol.walking import WalkConditions
from bricks.measure.worker.runtime import ALIGNMENT_BYTES, WorkerRuntime, aligned
from bricks.system import ProcessorWait, logical_cpus
from bricks.system.accelerator import AcceleratorState, joined
from bricks.system.host_conditions import HostConditions, mean_conditions


class WorkerInstruments:
    """The instruments of a worker."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self._runtime = runtime
        self._fillings: dict[bool, np.ndarray] = {}  # by whether they have both signs
        self.kernels = ReferenceKernels(self._load_kernels)
        self.evictor = CacheEvictor(lambda memory: runtime.instruments.eviction_read(memory))

    def filling(self, *, signed: bool) -> np.ndarray:
        """Bytes to fill memory with: numbers of both signs, or positive ones."""
        if signed not in self._fillings:
            seed = self._runtime.settings.seed
            self._fillings[signed] = self._runtime.instruments.filling(seed, signed=signed)
        return self._fillings[signed]

    def _load_kernels(self) -> dict[str, BoundModel]:
        """Load the reference kernels that the runtime takes, each with memory of its own."""
        backend, binding = self._runtime.backend, Binding((None,), (None,))
        kernels = dict[str, BoundModel]()
        for name, model in reference_kernels().items():
            with suppress(BackendError):  # conditions then lack that kernel
                loaded = backend.load(model, key=KERNEL.format(name), optimize=False)
                kernels[name] = loaded.bind(binding, np.zeros(0, np.uint8))
        return kernels

    def unload(self) -> None:
        """Unload the instruments of the loaded pieces."""
        self._runtime.unload()
        self.evictor.unload()


# Runs of each kernel: the first finds threads and caches as other work has left them, and an
# interruption lengthens one of the others only.
_WARM_UPS, _RUNS = 1, 2

# No clock distinguishes shorter latencies.
_BRIEF_S = 1e-9

# A timing is valid for this multiple of the time that it took.
_VALID = 10.0


class ReferenceKernels:
    """The kernels by name, which ``load`` returns when they are first timed."""

    def __init__(self, load: Callable[[], Mapping[str, BoundModel]]) -> None:
        self._load = load
        self._kernels: Mapping[str, BoundModel] | None = None
        self._last: HostConditions | None = None
        self._until_s = 0.0

    def now(self) -> HostConditions:
        """The conditions now."""
        if self._kernels is None:
            self._kernels = self._load()
        started_s = time.perf_counter()
        latency_s = {name: _latency_s(kernel) for name, kernel in self._kernels.items()}
        ended_s = time.perf_counter()
        self._until_s = ended_s + _VALID * (ended_s - started_s)
        self._last = HostConditions.of(latency_s, int(time.time()))
        return self._last

    def recent(self) -> HostConditions:
        """The last conditions as long as they are valid, and else the conditions now."""
        if self._last is None or time.perf_counter() > self._until_s:
            return self.now()
        return self._last

    def over(self, seconds: float, between: Callable[[], object]) -> list[HostConditions]:
        """Conditions again and again for so many ``seconds``; other work runs in ``between``."""
        until_s, every = time.perf_counter() + seconds, [self.now()]
        while time.perf_counter() < until_s:
            between()
            every.append(self.now())
        return every


def around(before: HostConditions | None, after: HostConditions | None) -> HostConditions | None:
    """The conditions of work between the two."""
    return before if before is after else mean_conditions([before, after])


def _latency_s(kernel: BoundModel) -> float:
    for _ in range(_WARM_UPS):
        kernel.sample()
    return max(_BRIEF_S, min(kernel.sample().host_s for _ in range(_RUNS)))


# A lack of memory for this few bytes is an error.
_MIN_BYTES = 1 << 20

# Loads a model that reads all of an array.
Load = Callable[[np.ndarray], BoundModel]


class CacheEvictor:
    """Memory to read, and a model for each size that is read."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._memory = np.zeros(0, np.uint8)
        self._max_bytes = 0  # that any walk over the loaded pieces reads
        self._tried_bytes = 0  # that were requested from the system, with or without success
        self._readers: dict[int, BoundModel] = {}  # by the bytes that they read

    def announce(self, max_bytes: int) -> None:
        """Note that walks read at most ``max_bytes``: the first read takes memory for all."""
        self._max_bytes = max_bytes

    def unload(self) -> None:
        """Unload the models that read, and keep the memory."""
        self._readers.clear()
        self._tried_bytes = len(self._memory)  # there may be more memory now

    def reader(self, size_bytes: int) -> tuple[BoundModel, bool]:
        """A model that reads ``size_bytes``, and whether it reads all of them.

        Where memory is short, it reads a half of them, or a quarter, and so on.
        """
        if size_bytes > self._tried_bytes:
            self._readers.clear()  # their memory goes first
            self._memory = np.zeros(0, np.uint8)
            self._tried_bytes = max(size_bytes, self._max_bytes)
            self._memory = _memory_of(self._tried_bytes)
        available = min(size_bytes, len(self._memory))
        if available not in self._readers:
            self._readers[available] = self._load(self._memory[: _whole_rows(available)])
        return self._readers[available], available == size_bytes


def _memory_of(size_bytes: int) -> np.ndarray:
    """Aligned memory of ``size_bytes`` in whole rows; of half the size until there is enough.

    Raises :class:`MemoryError` where there is none for ``_MIN_BYTES``.
    """
    while True:
        whole_bytes = _whole_rows(size_bytes)
        try:  # ones: for zeros the system may promise memory that it does not have
            return aligned(np.ones(whole_bytes + ALIGNMENT_BYTES, np.uint8))[:whole_bytes]
        except MemoryError:
            if size_bytes <= _MIN_BYTES:
                raise
            size_bytes //= 2


def _whole_rows(size_bytes: int) -> int:
    return max(1, -(-size_bytes // ROW_BYTES)) * ROW_BYTES


# Seconds of watching whether threads are idle, and how often they are watched.
_IDLE_CHECK_S, _IDLE_CHECKS = 0.02, 50


class ConditionWatch:
    """Observes the passes of one walk: call :meth:`before`, :meth:`begin` and :meth:`end`.

    Steps that are ``announced`` may crash: the reference kernels do not run next to them. Nodes
    of ``parallel`` steps run along streams.
    """

    def __init__(
        self,
        runtime: WorkerRuntime,
        instruments: WorkerInstruments,
        *,
        announced: bool,
        parallel: bool,
    ) -> None:
        self._runtime, self._instruments = runtime, instruments
        self._timed, self._parallel = not announced, parallel
        self._before: HostConditions | None = None
        self._waiting: ProcessorWait | None = None
        self._device_state: AcceleratorState | None = None

    def before(self) -> None:
        """Time the reference kernels, unless that was done a moment ago."""
        if self._timed:
            self._before = self._instruments.kernels.recent()

    def begin(self) -> None:
        """Begin to count how long threads wait: the timed passes follow."""
        self._device_state = self._device_now()
        self._waiting = ProcessorWait()

    def end(self) -> WalkConditions:
        """The conditions since :meth:`begin`."""
        waited_share = self._waited_share()
        device_state = joined([self._device_state, self._device_now()])
        if self._parallel:
            wait_for_idle_threads()
        host = around(self._before, self._instruments.kernels.recent()) if self._timed else None
        return WalkConditions(host, waited_share, device_state)

    def _device_now(self) -> AcceleratorState | None:
        """The state of the device that runs kernels; None without one."""
        backend = self._runtime.backend
        return backend.device_state() if isinstance(backend, KernelTimer) else None

    def _waited_share(self) -> float | None:
        """The share of the time since :meth:`begin` in which threads waited for a processor.

        More threads than processors wait for each other, and not for other processes; latencies
        that are made up are the same however busy the host is.
        """
        settings = self._runtime.settings
        threads = settings.threads + (settings.workers if self._parallel else 0)
        tells = self._runtime.backend.timed and threads <= len(logical_cpus())
        if self._waiting is None or not tells:
            return None
        return self._waiting.share()


def wait_for_idle_threads() -> None:
    """Wait, at most a second, until no thread of this process spins any more.

    Threads that run nodes in parallel go on looking for work for some 50 ms after the last node,
    and slow down whatever runs then.
    """
    for _ in range(_IDLE_CHECKS):
        before_s = time.process_time()
        time.sleep(_IDLE_CHECK_S)
        if time.process_time() - before_s < _IDLE_CHECK_S / 20:
            return
