"""Targets of a cache by the names that users give systems.

Must not know what is asked about them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from bricks.errors import UsageError, nearest

if TYPE_CHECKING:
    from bricks.session.workspace import Workspace
    from bricks.system import Runtime, System, Target


def systems_called(known: Iterable[System], name: str) -> list[System]:
    """Systems with this name or key; :class:`UsageError` if there are none.

    A published name counts where the cache calls the system otherwise.
    """
    every = list(known)
    found = [system for system in every if name in (system.name, system.key)]
    if not found:
        keys = _published_keys(name)
        found = [system for system in every if system.key in keys]
    if not found:
        names = sorted({system.name for system in every})
        meant = nearest(name, names)
        raise UsageError(
            f"no known system is called {name!r}; known: {', '.join(names) or 'none yet'}"
            f"{f'; did you mean {meant}?' if meant else ''}"
        )
    return found


def _published_keys(name: str) -> set[str]:
    """The keys of systems that are published under a name."""
    from bricks.store import Published  # here, since commands import this to show their help

    return {system.key for system in Published().systems.all() if system.name == name}


def target_called(workspace: Workspace, name: str) -> Target:
    """The target with the runtime of ``workspace`` on the system with this name or key.

    Its version there may be another one; the number of threads too, unless the options give it.
    Raises :class:`UsageError` if there is none, or more than one.
    """
    every = workspace.known.systems.targets()
    keys = {system.key for system in systems_called((t.system for t in every), name)}
    targets = [target for target in every if target.system.key in keys]
    wanted = workspace.runtime
    fitting = [t for t in targets if _like(t.runtime, wanted) == wanted]
    if workspace.options.threads is not None:
        fitting = [t for t in fitting if t.runtime.threads == wanted.threads]
    if not fitting:
        threads = "" if workspace.options.threads is None else f", {wanted.threads} threads"
        raise UsageError(
            f"system {name!r} has no measurements with {wanted.backend}{threads}, optimisation"
            f" {wanted.optimization} and granularity {workspace.granularity}: see 'bricks systems'"
        )
    if len({t.system.key for t in fitting}) > 1:
        listed = ", ".join(sorted({t.system.key for t in fitting}))
        raise UsageError(f"several systems are called {name!r}: give one of their keys, {listed}")
    return max(fitting, key=partial(nearness, wanted))


def _like(runtime: Runtime, wanted: Runtime) -> Runtime:
    return replace(runtime, version=wanted.version, threads=wanted.threads)


def nearness(wanted: Runtime, target: Target) -> tuple[object, ...]:
    """Of two targets of a system, the one that is more like what is wanted has more of this."""
    there = target.runtime
    return (
        there.threads == wanted.threads,
        there.version == wanted.version,
        there.threads,
        _numbers(there.version),
    )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]+", version)]
