"""Separate Python environments, for software that cannot share this one.

MXNet requires an older NumPy than everything else here, and the exporters of the zoo models have
conflicting requirements. Each has an environment of its own, created from a lock file with the
Python version that it requires. Must not know what runs in them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bricks.errors import BackendError, first_line

# Written last, so that an interrupted installation is repeated.
_STAMP = "ready"


class CommandFailed(BackendError):
    """A command that makes an environment failed; ``line`` is its error in full."""

    def __init__(self, name: str, line: str) -> None:
        super().__init__(
            f"the environment {name!r} could not be made: {first_line(Exception(line))}"
        )
        self.line = line


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment by name: its packages (a lock file with hashes) and its Python, ``3.11``.

    ``install`` is the command that creates it, for messages.
    """

    name: str
    lock: Path
    python: str
    install: str

    @property
    def folder(self) -> Path:
        """The folder of the environment, which may not exist; its name depends on the lock file."""
        digest = hashlib.sha256(self.lock.read_bytes() + self.python.encode()).hexdigest()
        return root() / f"{self.name}-{digest[:12]}"

    @property
    def interpreter(self) -> Path | None:
        """The path of its Python; None if it is not installed."""
        return self.folder / "bin" / "python" if ready(self.folder) else None

    def pinned(self, package: str) -> str:
        """The version of ``package`` that the lock file names."""
        pin = re.search(rf"^{re.escape(package)}==(\S+)", self.lock.read_text("utf-8"), re.M)
        if pin is None:
            raise BackendError(f"{self.lock} does not pin {package!r}: lock it again")
        return pin[1]

    def required(self) -> Path:
        """The path of its Python; :class:`BackendError` with the command that installs it."""
        python = self.interpreter
        if python is None:
            raise BackendError(f"the environment {self.name!r} is not installed: {self.install}")
        return python


def root() -> Path:
    """The folder of all environments: ``$BRICKS_ENVIRONMENTS``, else in the user's data folder."""
    chosen = os.environ.get("BRICKS_ENVIRONMENTS")
    if chosen:
        return Path(chosen).expanduser().absolute()
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "bricks" / "environments"


def install(
    environment: Environment, say: Callable[[str], None] = lambda line: None
) -> tuple[Path, bool]:
    """Create ``environment`` unless it exists; return its Python and whether it was created.

    ``say`` receives progress messages. Raises :class:`BackendError` if there is no such Python, or
    if installing fails. If two processes install at once, the second waits.
    """
    new = made_once(environment.name, environment.folder, lambda: _make(environment, say), say)
    return environment.required(), new


def ready(folder: Path) -> bool:
    """Whether the environment in ``folder`` was made to its end."""
    return (folder / _STAMP).is_file()


def made_once(
    name: str, folder: Path, make: Callable[[], None], say: Callable[[str], None]
) -> bool:
    """Call ``make`` unless the environment in ``folder`` is ready; return whether it was called.

    What an interrupted installation left is removed first. Raises :class:`BackendError` if the
    folder cannot be written. If two processes make it at once, the second waits, which ``say``
    receives.
    """
    import fcntl

    try:
        root().mkdir(parents=True, exist_ok=True)
        with open(root() / f"{name}.lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"waiting for another process, which makes the environment {name}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            if ready(folder):
                return False
            shutil.rmtree(folder, ignore_errors=True)
            make()
            (folder / _STAMP).touch()
    except OSError as exc:
        path = exc.filename or root()
        raise BackendError(
            f"the environment {name!r} cannot be made ({exc.strerror}: {path}):"
            " make room there, or give another folder in BRICKS_ENVIRONMENTS"
        ) from exc
    return True


def _make(environment: Environment, say: Callable[[str], None]) -> None:
    folder = environment.folder
    say(f"making the environment {environment.name} in {folder}")
    run(environment.name, [_python(environment), "-m", "venv", str(folder)])
    python = str(folder / "bin" / "python")
    say(f"installing what {environment.name} needs; this takes minutes")
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    lock = str(environment.lock)
    run(environment.name, [*pip, "install", "--require-hashes", "--no-deps", "-r", lock])


def _python(environment: Environment) -> str:
    """A working Python of the required version; one on the path may be a stub that doesn't run."""
    if sys.version_info[:2] == tuple(map(int, environment.python.split("."))):
        return sys.executable
    name = f"python{environment.python}"
    python = shutil.which(name)
    if python and subprocess.run([python, "-c", ""], capture_output=True).returncode == 0:
        return python
    raise BackendError(
        f"the environment {environment.name!r} needs Python {environment.python}, and there is no"
        f" {name} on the path: install it, or run bricks with it"
    )


def run(name: str, command: list[str]) -> None:
    """Run a command that makes the environment ``name``; :class:`CommandFailed` if it fails."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        if done.returncode == 0:
            return
        output.seek(0)
        lines = [line for line in output.read().splitlines() if line.strip()]
    # The first error line is the cause; later lines only repeat that there was one.
    line = next((line for line in lines if line.startswith("ERROR")), lines[-1] if lines else "")
    raise CommandFailed(name, line or f"exit status {done.returncode}")
