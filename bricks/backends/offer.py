"""What a package offers for a runtime: what is known of it, and done for it, before it is imported.

Light, since each command reads offers: importing this module imports neither a runtime nor numpy.
Must not know any runtime.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.errors import BackendError
from bricks.graph.form import ModelForm

if TYPE_CHECKING:
    from bricks.backends.base import Backend
    from bricks.system.environments import Environment


class MemoryUse(Enum):
    """What a process takes to run a model with a runtime, as far as that follows from the plan."""

    UNPREDICTED = "not predicted"
    PLANNED = "what the plan says"  # weights and values alone
    SESSION = "what the plan says, and a session's own data"  # arena, workspaces, tables


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """The facts about a backend that are known without starting it.

    ``timed`` says whether it takes real time, ``parallel`` whether it can run nodes in parallel.
    ``brick_optimization`` is the optimisation that it applies to bricks of any granularity, ``all``
    or ``none``; None if the granularity decides. ``python`` is the interpreter that the worker
    needs. ``bounded_memory`` says whether it holds only the memory that the loaded models need;
    otherwise the memory that a model takes cannot be predicted. ``levels`` are its levels of
    optimisation. ``build`` is the package that it was installed from, if known. ``cutting_times``
    is how many times as long as others it may take to tell the graph that it executes: more where
    it compiles bricks for that.
    """

    name: str
    version: str
    provider: str
    timed: bool
    parallel: bool = False
    brick_optimization: str | None = None
    python: str = sys.executable
    bounded_memory: bool = True
    levels: tuple[str, ...] = ("all",)
    build: str | None = None
    cutting_times: int = 1


@dataclass(frozen=True, slots=True)
class Counterparts:
    """Programs of a runtime that compute what ONNX operators and models do.

    ``operators`` is a module with a function for each operator, ``model`` the function
    (``module:function``) for a model in a file.
    """

    operators: str
    model: str


@dataclass(frozen=True, kw_only=True)
class Offer(ABC):
    """A runtime called ``name``; ``summary`` says in a line what it is.

    ``order`` is its place in lists, the smaller the earlier. ``collectives`` names the backends of
    collectives that its workers can be ranks with. ``counterparts`` are its programs in place of
    ONNX models, None if it has none. ``memory`` says whether the memory of a model can be
    predicted. A ``default`` runtime is taken for what it accepts where none is named. A ``variant``
    is another runtime with other settings, and is compared only where it is named. One that does
    not ``compute`` makes latencies up, needs no installation, and serves where a worker is needed
    and its runtime does not matter.
    """

    name: str
    summary: str = ""
    accepts: ModelForm = ModelForm.MODELS
    collectives: tuple[str, ...] = ()
    counterparts: Counterparts | None = None
    memory: MemoryUse = MemoryUse.UNPREDICTED
    default: bool = False
    variant: bool = False
    computes: bool = True
    order: int = 100

    @property
    def environment(self) -> Environment | None:
        """The Python environment that it needs; None if it runs in this one."""
        return None

    @abstractmethod
    def describe(self) -> BackendInfo:
        """The facts about the runtime, without importing it.

        Raises :class:`~bricks.errors.BackendError` if it is not installed; the message says how to
        fix it.
        """

    @abstractmethod
    def create(self, *, threads: int, seed: int, workers: int, optimization: str) -> Backend:
        """The backend; imports the runtime, so it is called in the worker process alone.

        ``workers`` is the number of nodes of a model that it may run at the same time,
        ``optimization`` one of its levels.
        """

    def for_ranks(self, collectives: str) -> BackendInfo:
        """The facts for workers that are ranks with this backend of ``collectives``.

        Raises :class:`~bricks.errors.BackendError` if it cannot be used on this host.
        """
        return self.describe()

    def launcher(self, rank: int, ranks: int, address: str, port: int) -> tuple[str, ...]:
        """The command that starts a worker as one of ``ranks``, which meet at ``address``.

        Options of Python that name the worker's module follow it. Raises
        :class:`~bricks.errors.BackendError` if the runtime has no such launcher.
        """
        raise BackendError(f"{self.name} starts no ranks of a training: choose another --runtime")


def locked_environment(module: str, name: str) -> Environment:
    """The environment called ``name``, whose lock file lies beside a ``module``'s file."""
    from bricks.system.environments import Environment  # here: importing it takes a moment

    lock = Path(module).with_name("requirements.lock")
    return Environment(name, lock, "3.11", f"bricks backends install {name}")


def unimportable(environment: Environment, error: ImportError) -> BackendError:
    """The error where an environment does not have its runtime."""
    return BackendError(f"{environment.name} cannot be imported ({error}): {environment.install}")
