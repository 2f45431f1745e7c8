"""The offer of a runtime: facts and functions that do not import it.

Each command reads offers, so importing this module imports neither a runtime nor numpy.
Must not know any runtime.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.errors import BackendError
from bricks.graph.form import ModelForm
from bricks.system.accelerator import CPU, Accelerator

if TYPE_CHECKING:
    from bricks.backends.base import Backend
    from bricks.backends.profiler_trace import TraceFormat
    from bricks.backends.users_python import UsersPython
    from bricks.system.environments import Environment


class MemoryUse(Enum):
    """The predictable parts of the memory of a process that runs a model."""

    UNPREDICTED = "not predicted"
    PLANNED = "what the plan says"  # weights and values alone
    SESSION = "what the plan says, and a session's own data"  # arena, workspaces, tables


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """The facts about a backend that are known without starting it.

    ``timed`` is whether latencies are measured, ``parallel`` whether nodes can run in parallel.
    ``brick_optimization`` is the optimisation of bricks of any granularity, ``all`` or ``none``;
    None if the granularity decides. ``bounded_memory``
    is whether a process has only the memory that loaded models need; otherwise the memory of a
    model cannot be predicted. ``levels`` are the levels of optimisation. ``build`` is the package
    that was installed, if known. ``cutting_times`` multiplies the time limit for returning executed
    graphs: more where bricks are compiled for them.

    ``python`` is the interpreter of the worker, ``users`` whether that is one of the user, whose
    ``python_version``, such as ``3.13``, is part of the target of programs. ``note`` says which of
    the user's it is, or why it is none.
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
    python_version: str | None = None
    users: bool = False
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Counterparts:
    """Programs of a runtime that are equivalent to ONNX operators and models.

    ``operators`` is a module with a function for each operator, ``model`` the function
    (``module:function``) for a model file.
    """

    operators: str
    model: str


@dataclass(frozen=True, kw_only=True)
class Offer(ABC):
    """A runtime ``name``, with a ``summary`` in one line.

    ``order`` sorts lists, ascending. ``collectives`` are the backends of collectives of its ranks.
    ``counterparts`` are its programs in place of ONNX models, None without. ``memory`` are the
    predictable parts of a model's memory. A ``default`` runtime runs the models that it accepts
    where the user names none. A ``variant`` is another runtime with other settings, and is compared
    only where it is named; a ``narrow`` one computes in fewer bits than models have. One that does
    not ``compute`` returns latencies by formula, needs no installation, and runs in workers whose
    runtime does not matter. ``package`` is the name of its package for pip; None if neither other
    versions nor a Python of the user can run. ``oldest`` is the first version that runs; None if
    all do. ``vectorised`` are the operators, by their plain names, around which the executed graph
    depends on the width of the processor's vectors; None if that of any model may. Kept plans of a
    rule before ``rule`` that have one of the operators ``revised`` are made again: the rule by
    which the runtime's graphs are grouped was wrong of them. ``python`` is the Python that the user
    names for it.
    """

    name: str
    summary: str = ""
    accepts: ModelForm = ModelForm.MODELS
    collectives: tuple[str, ...] = ()
    counterparts: Counterparts | None = None
    memory: MemoryUse = MemoryUse.UNPREDICTED
    default: bool = False
    variant: bool = False
    narrow: bool = False
    computes: bool = True
    order: int = 100
    package: str | None = None
    oldest: str | None = None
    vectorised: frozenset[str] | None = None
    rule: int = 0
    revised: frozenset[str] = frozenset()
    python: str | None = None

    @property
    def environment(self) -> Environment | None:
        """The Python environment of the runtime; None for the current one."""
        return None

    @abstractmethod
    def describe(self) -> BackendInfo:
        """Return the facts about the runtime, without importing it.

        Raises :class:`~bricks.errors.BackendError` if it is not installed; the message says how to
        install it.
        """

    def describe_elsewhere(self) -> BackendInfo:
        """Return the facts about the runtime for questions about other hosts.

        Here it need not be installed, if the offer knows the facts without that; by default it
        does not.
        """
        return self.describe()

    @abstractmethod
    def create(self, *, threads: int, seed: int, workers: int, optimization: str) -> Backend:
        """Create the backend; imports the runtime, so call it in the worker process.

        ``workers`` is the number of nodes of a model that may run at the same time,
        ``optimization`` one of the levels.
        """

    def on(self, device: str) -> Offer:
        """Return the offer of this runtime on a device: ``cpu`` or ``cuda``.

        Raises :class:`~bricks.errors.BackendError` in one line if it cannot run there, which names
        what this host lacks.
        """
        if device == CPU:
            return self
        raise BackendError(f"{self.name} runs on the processor alone: leave out --device {device}")

    def in_python(self, python: str | None) -> Offer:
        """Return the offer of this runtime in the Python at a path; ``bricks``: its installed one.

        None leaves the choice to :meth:`users_python`. Raises
        :class:`~bricks.errors.BackendError` if no Python of the user can run it.
        """
        if python is not None and self.package is None:
            raise BackendError(f"{self.name} runs in its own Python alone: leave out --python")
        return replace(self, python=python)

    def users_python(self) -> UsersPython | None:
        """Return the Python of the user that runs it; None for that of bricks.

        Raises :class:`~bricks.errors.BackendError` if the user's cannot run it.
        """
        if self.package is None:
            return None
        from bricks.backends.users_python import users_python  # slow import

        own = self.environment is not None
        return users_python(self.package, self.oldest, self.python, own=own)

    def described_in(self, found: UsersPython) -> BackendInfo:
        """Return the facts about the runtime in a Python of the user."""
        return replace(
            self.describe_elsewhere(),
            version=found.package.version,
            build=found.package.build,
            python=found.python,
            users=True,
            note=found.note,
        )

    def accelerator(self) -> Accelerator | None:
        """Return the accelerator that runs models; None for the processor."""
        return None

    def for_ranks(self, collectives: str) -> BackendInfo:
        """Return the facts for workers that are ranks with a backend of ``collectives``.

        Raises :class:`~bricks.errors.BackendError` if it cannot be used on this host.
        """
        return self.describe()

    def trace_format(self) -> TraceFormat | None:
        """Return the format of the traces that its profiler writes; None if none is read."""
        return None

    def launcher(self, rank: int, ranks: int, address: str, port: int) -> tuple[str, ...]:
        """Return the command that starts a worker as one of ``ranks``, which meet at ``address``.

        Options of Python that name the worker's module follow it. Raises
        :class:`~bricks.errors.BackendError` if the runtime has no such launcher.
        """
        raise BackendError(f"{self.name} starts no ranks of a training: choose another --runtime")


def locked_environment(module: str, name: str) -> Environment:
    """Return the environment ``name``, whose lock file is in the folder of a ``module``'s file."""
    from bricks.system.environments import Environment  # slow import

    lock = Path(module).with_name("requirements.lock")
    return Environment(name, lock, "3.11", f"bricks backends install {name}")


def unimportable(environment: Environment, error: ImportError) -> BackendError:
    """Return the error for an environment without its runtime, in a worker."""
    from bricks.backends.users_python import OWN
    from bricks.system.environments import ready

    if ready(Path(sys.executable).parent.parent):
        return BackendError(
            f"{environment.name} cannot be imported ({error}): {environment.install}"
        )
    return BackendError(
        f"{environment.name} cannot be imported in {sys.executable} ({error}): repair it there, or"
        f" give another --python; '--python {OWN}' is the one that bricks installs"
    )
