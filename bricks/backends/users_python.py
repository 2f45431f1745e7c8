"""Which Python runs a runtime: one of the user's, or one of bricks.

The user's is the one that ``--python`` names; else that of ``BRICKS_PYTHON`` or of the active
virtual environment, where it has the runtime's package. Must not know any runtime.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.errors import BackendError

if TYPE_CHECKING:
    from bricks.system.interpreters import Package

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
    :class:`BackendError` in one line if the ``named`` one lacks the package or is too old.
    """
    candidates = _candidates(package, own) if named is None else ()
    if named == OWN or (named is None and not candidates):
        return None
    from bricks.system.interpreters import inspected, program_of  # most commands need no other

    if named is not None:
        return _fit(program_of(named, "--python"), package, oldest, "--python")
    for path, origin in candidates:
        python = program_of(path, origin)
        if package in inspected(python, package).packages:
            try:
                return _fit(python, package, oldest, origin)
            except BackendError as error:
                problem, _, _ = str(error).partition(": ")
                raise BackendError(
                    f"{problem}, and it is that of {origin}: give --python {OWN}, or set {VARIABLE}"
                    f"={OWN}, for the {package} that bricks installs, or name another"
                ) from error
    return None


def _candidates(package: str, own: bool) -> Sequence[tuple[str, str]]:
    """Pythons that this command does not name, and where each comes from."""
    variable = os.environ.get(VARIABLE)
    if variable == OWN:
        return ()
    found = [(variable, VARIABLE)] if variable else []
    for name in _ACTIVE:
        folder = os.environ.get(name)
        python = Path(folder or "", "bin", "python")
        if folder and python.is_file() and not os.path.samefile(folder, sys.prefix):
            found.append((str(python), "the active environment"))
    if own and importlib.util.find_spec(package) is not None:
        found.append((sys.executable, "the environment of bricks"))
    return found


def _fit(python: str, package: str, oldest: str | None, origin: str) -> UsersPython:
    from bricks.system.interpreters import inspected
    from bricks.system.version_environments import numbers
    from bricks.system.worker_packages import refuse_unfit

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
    refuse_unfit(python)
    note = f"{package} {found.version} of {python} ({origin}) is used"
    return UsersPython(python, "{}.{}".format(*interpreter.version), found, note)
