"""Other versions of a runtime than the installed one, each in an environment of its own.

Must not know any runtime.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bricks.backends.catalogue import describe, names, offer
from bricks.errors import BackendError, UsageError, suggestion

if TYPE_CHECKING:
    from bricks.backends.offer import BackendInfo
    from bricks.system.version_environments import VersionEnvironment

_SIGN = "=="
_VERSION = re.compile(r"\d[\w.+!-]*")


@dataclass(frozen=True, slots=True)
class RuntimeVersion:
    """The runtime ``name`` in ``version``."""

    name: str
    version: str

    @classmethod
    def named(cls, word: str) -> bool:
        """Whether ``word`` is written as a version: ``onnxruntime==1.30.0``."""
        return _SIGN in word

    @classmethod
    def parse(cls, word: str) -> RuntimeVersion:
        """Parse ``NAME==VERSION``; :class:`UsageError` if there is none, or it is too old."""
        name, _, version = (part.strip() for part in word.partition(_SIGN))
        if name not in names():
            raise UsageError(f"no runtime is called {name!r}: {suggestion(name, names())}")
        if not _VERSION.fullmatch(version):
            raise UsageError(f"{word!r} has no version: write it like {name}==1.30.0")
        oldest = offer(name).oldest
        if oldest is not None and _older(version, oldest):
            raise UsageError(f"{word} is too old to be measured: give {name}=={oldest} or newer")
        return cls(name, version)

    def describe(self, python: str | None = None) -> BackendInfo:
        """The facts about it; :class:`BackendError` unless it is installed.

        All other packages are those of ``python``, a path as in :func:`bricks.backends.describe`.
        """
        info = describe(self.name, python=python)
        if info.version == self.version:
            return info
        environment = self._environment(info)
        if not environment.ready:
            raise BackendError(f"{self.name} {self.version} is not installed: 'bricks diff' does")
        build = None if info.build is None else environment.build
        return replace(info, version=self.version, python=str(environment.python), build=build)

    def check(self) -> None:
        """Raise :class:`UsageError` if it is not here, and other versions cannot be installed."""
        info = describe(self.name)
        if info.version != self.version:
            self._environment(info)

    def install(self, say: Callable[[str], None] = lambda line: None) -> bool:
        """Install it unless it is; return whether it is new. ``say`` receives progress.

        Raises :class:`BackendError` if there is no such version, or it cannot be installed.
        """
        info = describe(self.name)
        return info.version != self.version and self._environment(info).install(say)

    def _environment(self, info: BackendInfo) -> VersionEnvironment:
        from bricks.system.version_environments import VersionEnvironment  # slow import

        package = offer(self.name).package
        if package is None:
            raise UsageError(
                f"versions of {self.name} cannot be installed: only {info.version} is there"
            )
        return VersionEnvironment(package, self.version, info.python)


def _older(version: str, than: str) -> bool:
    from bricks.system.version_environments import numbers  # slow import

    return numbers(version) < numbers(than)
