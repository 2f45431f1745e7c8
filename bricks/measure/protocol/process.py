"""Requests to the worker process itself: make its backend, limit its memory."""

from __future__ import annotations

from dataclasses import dataclass

from bricks.measure.protocol.request import Request
from bricks.system.accelerator import CPU


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """Settings with which a worker makes its backend.

    ``memory_bytes`` limits the data of the process; None: no limit. ``workers`` is how many nodes
    of a model run at the same time. ``timing`` is whether latencies are measured. ``device`` runs
    the models: ``cpu`` or ``cuda``. With ``repeat_inputs``, all runs have the same inputs.
    """

    backend: str
    threads: int
    seed: int
    memory_bytes: int | None = None
    workers: int = 1
    timing: bool = True
    optimization: str = "all"
    device: str = CPU
    repeat_inputs: bool = False


@dataclass(frozen=True, slots=True)
class Hello(Request[int]):
    """The first request: make the backend. The answer is the process's number.

    ``location`` is where the runtime's offer is (:func:`bricks.backends.location`); empty where
    packages are installed.
    """

    settings: BackendSettings
    location: str = ""


@dataclass(frozen=True, slots=True)
class LimitMemory(Request[int | None]):
    """Limit the data of the process to ``memory_bytes``; None: no limit.

    The answer is the bytes of data that it has now; None where the system does not report them.
    """

    memory_bytes: int | None
