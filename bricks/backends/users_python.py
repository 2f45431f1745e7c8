"""Which Python runs a runtime: one of the user's, or one of bricks.

The user's is the one that ``--python`` names; else that of ``BRICKS_PYTHON``; else that of the
active environment, where it has the runtime's package. Must not know any runtime.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.errors import BackendError

if TYPE_CHECKING:
    from bricks.system.worker_packages import Package

# The environment variable with the path of the user's Python.
VARIABLE = "BRICKS_PYTHON"

# In place of a path: the runtime as bricks has installed it, whatever is active.
OWN = "bricks"

# Variables with the folder of an active environment, of venv and of conda.
_ACTIVE = "VIRTUAL_ENV", "CONDA_PREFIX"


@dataclass(frozen=True, slots=True)
class UsersPython:
    """The Python at the path ``python``, its ``version`` such as ``3.13``, and a runtime's package.

    ``note`` says in one line where it comes from.
    """

    python: str
    version: str
    package: Package
    note: str


def users_python(
    package: str, oldest: str | None, named: str | None, *, own: bool
) -> UsersPython | None:
    """Return the user's Python that runs the runtime of ``package``; None: that of bricks runs it.

    ``oldest`` is the first version of the package that runs. ``named`` is a path, or ``bricks``.
    With ``own``, the Python of this process counts where it has the package, too. Raises
    :class:`BackendError` in one line if the ``named`` one, or that of ``BRICKS_PYTHON``, lacks the
    package, or if the one that would run it is too old.
    """
    found = _found(package, own) if named is None else (named, "--python")
    if found is None or found[0] == OWN:
        return None
    from bricks.system.worker_packages import program_of  # most commands need no other

    path, origin = found
    python = program_of(path, origin)
    try:
        return _fit(python, package, oldest, origin)
    except BackendError as error:
        if named is not None:
            raise
        problem, _, _ = str(error).partition(": ")
        raise BackendError(
            f"{problem}, and it is that of {origin}: give --python {OWN}, or set {VARIABLE}={OWN},"
            f" for the {package} that bricks installs, or name another"
        ) from error


def passed_over(package: str) -> str | None:
    """Return a line on the active environment, which lacks ``package``; None without one."""
    if os.environ.get(VARIABLE):
        return None
    return next(
        (
            f"the active environment {Path(python).parents[1]} has no {package}: that of bricks is"
            " used"
            for python in _active()
        ),
        None,
    )


def _found(package: str, own: bool) -> tuple[str, str] | None:
    """The Python that runs ``package`` where none is named, and where it comes from."""
    variable = os.environ.get(VARIABLE)
    if variable:
        return variable, VARIABLE
    from bricks.system.worker_packages import inspected

    for python in _active():
        if package in inspected(python, package).packages:
            return python, "the active environment"
    if own and importlib.util.find_spec(package) is not None:
        return sys.executable, "the environment of bricks"
    return None


def _active() -> Iterator[str]:
    """The Pythons of active environments, unless bricks is in them."""
    for name in _ACTIVE:
        folder = os.environ.get(name)
        python = Path(folder or "", "bin", "python")
        if folder and python.is_file() and not os.path.samefile(folder, sys.prefix):
            yield str(python)


def _fit(python: str, package: str, oldest: str | None, origin: str) -> UsersPython:
    from bricks.system.version_environments import numbers
    from bricks.system.worker_packages import inspected, refuse_unfit

    refuse_unfit(python)
    interpreter = inspected(python, package)
    found = interpreter.packages.get(package)
    if found is None:
        raise BackendError(
            f"{python} has no {package}: install it there, or give another --python; '--python"
            f" {OWN}' is the one that bricks installs"
        )
    if oldest is not None and numbers(found.version) < numbers(oldest):
        raise BackendError(
            f"{python} has {package} {found.version}, which is too old to be measured: give a"
            f" --python with {oldest} or newer"
        )
    note = f"{package} {found.version} of {python} ({origin}) is used"
    return UsersPython(python, "{}.{}".format(*interpreter.version), found, note)
