"""Other Pythons than this process's: their version, and the packages that they have.

A Python is asked by running it, since only itself knows its path; nothing of it is imported here.
Must not know what runs in it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from bricks.errors import BackendError, first_line

_TIMEOUT_S = 60.0

# Prints the implementation, the version, and for each package among the arguments its version, the
# tags of its wheel, and the file of its module. Runs on Pythons that are too old for anything else.
_ASK = """
import json, platform, sys
packages = {}
try:
    import importlib.util
    from importlib import metadata
    names = sys.argv[1:]
except ImportError:
    names = []
for name in names:
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        continue
    lines = (package.read_text("WHEEL") or "").splitlines()
    tags = [line.partition(":")[2].strip() for line in lines if line.startswith("Tag:")]
    module = importlib.util.find_spec(name) if name.isidentifier() else None
    packages[name] = [package.version, ", ".join(tags) or None, module and module.origin]
print(json.dumps([platform.python_implementation().lower(), sys.version_info[:2], packages]))
"""


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package: its version, the tags of its wheel and its module's file, if known."""

    version: str
    build: str | None
    module: str | None


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python at the path ``python``, its ``version`` and installed ``packages`` by name."""

    python: str
    implementation: str
    version: tuple[int, int]
    packages: Mapping[str, Package]


def program_of(path: str, origin: str) -> str:
    """Return the program that ``path`` means: a Python, its name, or the folder that it is in.

    Raises :class:`BackendError` if there is none, with the option or variable of its ``origin``.
    """
    place = Path(path).expanduser()
    is_path = "/" in path or "~" in path
    program = place / "bin" / "python" if place.is_dir() else place
    found = shutil.which(program if is_path or program.is_file() else path)
    if found is None:
        if place.is_dir():
            problem = f"the folder {path!r} has no bin/python"
        elif place.exists():
            problem = f"the file {path!r} cannot be run"
        else:
            problem = f"there is no {'file' if is_path else 'program'} {path!r}"
        raise BackendError(
            f"{origin} names no Python: {problem}: give the path of one, or the folder of its"
            " environment"
        )
    # The program itself is not resolved: the link leads to an environment.
    return str(Path(found).parent.resolve() / Path(found).name)


@lru_cache
def inspected(python: str, *packages: str) -> Interpreter:
    """Run ``python`` and return what it says of itself and of those of ``packages`` that it has.

    Raises :class:`BackendError` if it cannot be run, or is no Python.
    """
    command = [python, "-c", _ASK, *packages]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise BackendError(f"{python} cannot be run ({first_line(exc)}): give a Python") from exc
    lines = done.stdout.splitlines()  # code that starts with Python may print, too
    try:
        implementation, version, found = json.loads(lines[-1] if lines else "")
        have = {name: Package(*facts) for name, facts in found.items()}
        return Interpreter(python, implementation, (version[0], version[1]), have)
    except (ValueError, TypeError) as exc:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise BackendError(f"{python} is no Python that runs ({last[0][:120]})") from exc
