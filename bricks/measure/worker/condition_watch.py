"""Observes the machine around the passes of a walk: its state, and who else used the processor.

Must not know which bricks the passes run.
"""

from __future__ import annotations

import time

from bricks.backends.kernel_timing import KernelTimer
from bricks.measure.protocol.walking import WalkConditions
from bricks.measure.worker.instruments import WorkerInstruments
from bricks.measure.worker.reference_kernels import around
from bricks.measure.worker.runtime import WorkerRuntime
from bricks.system import ProcessorWait, logical_cpus
from bricks.system.accelerator_state import AcceleratorState, joined
from bricks.system.host_conditions import HostConditions

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
