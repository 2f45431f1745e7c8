"""The packages that a worker imports, for Pythons of the user that lack some of them.

They travel as a folder at the end of the worker's path: what the user's Python has comes first, and
nothing is installed there. For a Python of this process's version the folder links to the packages
of this process; else, or where these do not fit, pip fills it. A Python is asked what it has by
running it, since only itself knows its path; nothing of it is imported here. Must not know any
runtime.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from bricks.errors import BackendError, first_line
from bricks.system.environments import CommandFailed, made_once, ready, root, run

# What a worker imports: packages, the oldest version of each that works, and its module.
_NEEDED = {
    "numpy": ("1.26", "numpy"),
    "onnx": ("1.17", "onnx"),
    "ml_dtypes": ("0.4", "ml_dtypes"),
    "networkx": ("3.2", "networkx"),
    "psutil": ("5.9", "psutil"),
    "py-cpuinfo": ("9.0", "cpuinfo"),
}

# What these import, which a Python may also have, in a version that they must fit.
_BELOW = ("protobuf", "typing_extensions")

# The first Python that the code of workers runs on.
OLDEST = 3, 9

_LEAST = re.compile(r"([\w-]+)\s*>=\s*([\d.]+)")


def worker_packages(python: str, say: Callable[[str], None] = lambda line: None) -> Path | None:
    """Return the folder with what a worker in ``python`` needs; None if it lacks nothing.

    The folder is made at the first call, once; ``say`` receives progress. Raises
    :class:`BackendError` in one line if ``python`` is too old, has a package that is, or if what it
    lacks cannot be had.
    """
    if python == sys.executable or ready(Path(python).parent.parent):
        return None  # environments of bricks have what workers need
    interpreter = inspected(python, *_NEEDED, *_BELOW, "pip")
    _refuse_old(interpreter)
    lacking = [name for name in _NEEDED if name not in interpreter.packages]
    if not lacking:
        return None
    facts = [
        *_versions(interpreter).items(),
        sys.version_info[:2],
        *{name: metadata.version(name) for name in (*_NEEDED, *_BELOW)}.items(),
    ]
    digest = hashlib.sha256(f"{interpreter.version} {sorted(map(str, facts))}".encode())
    name = "worker-{}.{}".format(*interpreter.version)
    folder = root() / f"{name}-{digest.hexdigest()[:12]}"
    made_once(name, folder, lambda: _make(name, folder, interpreter, lacking, say), say)
    return folder


def refuse_unfit(python: str) -> None:
    """Raise :class:`BackendError` if no worker can run in ``python``, before one is started."""
    if python != sys.executable:
        _refuse_old(inspected(python, *_NEEDED, *_BELOW))


def _refuse_old(interpreter: Interpreter) -> None:
    python = interpreter.python
    if interpreter.implementation != "cpython" or interpreter.version < OLDEST:
        title = "{} {}.{}".format(interpreter.implementation, *interpreter.version)
        raise BackendError(
            f"{python} is {title}, and bricks measures in cpython {OLDEST[0]}.{OLDEST[1]} or newer:"
            " give another --python"
        )
    for name, (oldest, _) in _NEEDED.items():
        package = interpreter.packages.get(name)
        if package is not None and _numbers(package.version) < _numbers(oldest):
            raise BackendError(
                f"{python} has {name} {package.version}, and bricks needs {oldest} or newer there:"
                " upgrade it, or give another --python"
            )


def _make(
    name: str,
    folder: Path,
    interpreter: Interpreter,
    lacking: list[str],
    say: Callable[[str], None],
) -> None:
    folder.mkdir()
    if interpreter.version == sys.version_info[:2] and _fits(interpreter):
        for entry in _own_entries([*lacking, *_BELOW]):
            (folder / entry.name).symlink_to(entry)
        if _import_error(interpreter.python, folder) is None:
            return
        for link in folder.iterdir():
            link.unlink()
    say(
        f"getting what bricks needs next to {interpreter.python}"
        f" ({', '.join(lacking)}) into {folder}, once"
    )
    _install(name, folder, interpreter)
    if (error := _import_error(interpreter.python, folder)) is not None:
        raise BackendError(
            f"what bricks needs cannot be imported in {interpreter.python}: {error}:"
            f" install {', '.join(lacking)} there, or give another --python"
        )


def _install(name: str, folder: Path, interpreter: Interpreter) -> None:
    """Have pip fill ``folder`` with packages that fit those of ``interpreter``."""
    # A local part of a version, such as +cu130, is of no index.
    wanted = [f"{n}=={v.partition('+')[0]}" for n, v in _versions(interpreter).items()]
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(wanted), encoding="utf-8")
    # In the user's Python: pip's option --python-version does not hold for all that it compares.
    pip = [interpreter.python, "-m", "pip"]
    if "pip" not in interpreter.packages:
        pip = [sys.executable, "-m", "pip", "--python", interpreter.python]
    try:
        run(
            name,
            [
                *(*pip, "--quiet", "--disable-pip-version-check", "--no-input", "install"),
                *("--target", str(folder), "--only-binary", ":all:"),
                *("--constraint", str(constraints)),
                *(f"{package}>={oldest}" for package, (oldest, _) in _NEEDED.items()),
            ],
        )
    except CommandFailed as error:
        raise BackendError(
            f"{interpreter.python} lacks packages that bricks needs, and pip cannot get them:"
            f" {error.line[:160]}"
        ) from error


def _versions(interpreter: Interpreter) -> Mapping[str, str]:
    return {
        name: package.version for name, package in interpreter.packages.items() if name != "pip"
    }


def _fits(interpreter: Interpreter) -> bool:
    """Whether the packages of ``interpreter`` are new enough for those of this process."""
    for name in _NEEDED:
        for line in metadata.requires(name) or ():
            requirement, _, marker = line.partition(";")
            least = _LEAST.match(requirement.strip())
            if least is None or "extra" in marker:
                continue
            theirs = interpreter.packages.get(least[1])
            if theirs is not None and _numbers(theirs.version) < _numbers(least[2]):
                return False
    return True


def _own_entries(names: list[str]) -> Iterator[Path]:
    """Files and folders of this process's packages, next to which others may lie."""
    found = {}
    for name in names:
        package = metadata.distribution(name)
        for file in package.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not top.endswith(".dist-info"):
                found[top] = Path(str(package.locate_file(top)))
    yield from found.values()


def _import_error(python: str, folder: Path) -> str | None:
    """The error of importing what workers import, with ``folder`` last; None if there is none."""
    modules = ", ".join(module for _, module in _NEEDED.values())
    code = f"import sys; sys.path.append({str(folder)!r}); import {modules}"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:160]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])))


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
