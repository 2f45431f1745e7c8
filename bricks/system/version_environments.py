"""Environments with another version of one package: all other packages are those of a base Python.

Installed by pip from the index that the user's pip is set up for, and kept for the next time. Must
not know what the package is for.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from bricks.errors import BackendError
from bricks.system.environments import CommandFailed, made_once, ready, root, run
from bricks.system.worker_packages import worker_packages

_KNOWN = re.compile(r"\(from versions: (.*)\)")
_RELEASE = re.compile(r"\d+(?:\.\d+)*(?:\.post\d+)?")
_PURE = "import sysconfig; print(sysconfig.get_path('purelib'))"

# This many versions are named in place of one that does not exist.
_NEAREST = 2


@dataclass(frozen=True, slots=True)
class VersionEnvironment:
    """``package`` in ``version``, with all other packages of the interpreter ``base``."""

    package: str
    version: str
    base: str

    @property
    def name(self) -> str:
        """The name of the environment: ``onnxruntime-1.30.0``."""
        return f"{self.package}-{self.version}"

    @property
    def folder(self) -> Path:
        """The folder of the environment, which may not exist."""
        digest = hashlib.sha256(f"{self.base} {sys.version_info[:2]}".encode()).hexdigest()
        return root() / f"{self.name}-{digest[:12]}"

    @property
    def python(self) -> Path:
        """The interpreter; it may not exist."""
        return self.folder / "bin" / "python"

    @property
    def ready(self) -> bool:
        """Whether it was made."""
        return ready(self.folder)

    @property
    def build(self) -> str | None:
        """The platforms of the installed wheel, by its tags; None if it does not tell."""
        found = metadata.distributions(path=[str(self._packages)], name=self.package)
        facts = "".join(each.read_text("WHEEL") or "" for each in found)
        tags = re.findall(r"^Tag: *(.*?) *$", facts, re.MULTILINE)
        return ", ".join(tags) or None

    @property
    def _packages(self) -> Path:
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def install(self, say: Callable[[str], None] = lambda line: None) -> bool:
        """Make it unless it exists; return whether it was made. ``say`` receives progress.

        Raises :class:`BackendError` for a version that does not exist, with the nearest ones, and
        if installing fails.
        """
        return made_once(self.name, self.folder, lambda: self._make(say), say)

    def _make(self, say: Callable[[str], None]) -> None:
        say(f"installing {self.package} {self.version} in {self.folder}, once")
        run(self.name, [self.base, "-m", "venv", "--without-pip", str(self.folder)])
        pure = subprocess.run([self.base, "-c", _PURE], capture_output=True, text=True, check=False)
        own, base = str(self._packages), pure.stdout.strip()
        # First on the path, even before PYTHONPATH, which workers get.
        line = f"import sys, site; sys.path.insert(0, {own!r}); site.addsitedir({base!r})"
        if (packages := worker_packages(self.base, say)) is not None:
            line += f"; sys.path.append({str(packages)!r})"
        line += "\n"
        (self._packages / "base.pth").write_text(line, encoding="utf-8")
        wanted = f"{self.package}=={self.version}"
        try:
            run(self.name, [*self._pip(), "install", "--only-binary", ":all:", wanted])
        except CommandFailed as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise BackendError(self._refused(error.line)) from error

    def _pip(self) -> list[str]:
        options = ["--quiet", "--disable-pip-version-check", "--no-input"]
        if util.find_spec("pip") is not None:
            return [sys.executable, "-m", "pip", "--python", str(self.python), *options]
        run(self.name, [str(self.python), "-m", "ensurepip"])
        return [str(self.python), "-m", "pip", *options]

    def _refused(self, line: str) -> str:
        """The error line of pip, or the nearest versions in place of one that does not exist."""
        known = _KNOWN.search(line)
        if known is None:
            return f"{self.package} {self.version} cannot be installed: {line}"
        close = nearest(self.version, known[1].split(", "))
        advice = (
            f"the nearest are {' and '.join(close)}" if close else "there is none for this host"
        )
        return f"there is no {self.package} {self.version} for this Python: {advice}"


def nearest(version: str, known: Sequence[str]) -> list[str]:
    """The released versions in ``known`` right below and above ``version``, ascending."""
    releases = sorted((each for each in known if _RELEASE.fullmatch(each)), key=numbers)
    wanted = numbers(version)
    below = [each for each in releases if numbers(each) <= wanted]
    above = [each for each in releases if numbers(each) > wanted]
    return [*below[-1:], *above[:1]] if below and above else [*below[-_NEAREST:], *above[:_NEAREST]]


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, by which releases are in order."""
    return tuple(map(int, re.findall(r"\d+", version)))
