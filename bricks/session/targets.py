"""Targets of a cache by the names that users give systems.

A card that nobody measured is a system too, known by its published peaks alone; its host and
runtime are taken to be those of a measured system. Must not know what is asked about targets.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bricks.errors import NameUnknown, UsageError, nearest
from bricks.session.defaults import PROGRAMS_RUNTIME
from bricks.system.accelerator import ACCELERATOR
from bricks.system.cards import card_named, cards_called, known_aliases
from bricks.system.names import names_of
from bricks.system.target import System, Target

if TYPE_CHECKING:
    from bricks.session.workspace import Workspace
    from bricks.system import Runtime

# An error lists so many systems.
_MOST = 8


def systems_called(known: Iterable[System], name: str) -> list[System]:
    """Systems with this name or key, or else with this word in their name.

    ``zen5`` is enough for ``amd-epyc-zen5-2c``. A published name counts where the cache calls the
    system otherwise. Raises :class:`UsageError` if no system has it, or if several names do.
    """
    systems = list(known)
    matching = [system for system in systems if name in (system.name, system.key)]
    if not matching:
        from bricks.store import Published  # here, since commands import this to show their help

        keys = {system.key for system in Published().systems.all() if system.name == name}
        matching = [system for system in systems if system.key in keys]
    return matching or _with_word(systems, name)


def _with_word(systems: Sequence[System], word: str) -> list[System]:
    """The systems whose name has ``word`` in it; :class:`UsageError` for none or several names."""
    matching = [system for system in systems if word and word.lower() in system.name.lower()]
    matching = matching or unmeasured_systems(word, systems)
    names = sorted({system.name for system in matching})
    if len(names) > 1:
        listed = " and ".join(names)
        raise NameUnknown(f"{word!r} is a part of {listed}: give the whole name of one")
    if matching:
        return matching
    names = sorted({system.name for system in systems})
    short = sorted(short_names(names).values())
    some = ", ".join(short[:_MOST]) + (" …" if len(short) > _MOST else "") if short else "none yet"
    unknown = f"no {word} among the known systems ({some})"
    # Names of cards as people type them, where cards are predicted.
    aliases = known_aliases() if any(system.accelerator for system in systems) else ()
    cards = [f"{maker}{alias}" for alias in aliases for maker in ("", "nvidia-")]
    if (meant := nearest(word, [*short, *names, *cards])) is not None:
        raise NameUnknown(f"{unknown}: did you mean {meant}?")
    raise NameUnknown(
        f"{unknown}; measure it there:"
        " 'bricks generate MODEL --out suite.zip' here, 'bricks measure suite.zip' and"
        " 'bricks cache export' there, 'bricks cache import' here"
    )


def short_names(names: Collection[str]) -> dict[str, str]:
    """A word of each name that no other name holds, which is enough to name it.

    Words such as ``zen5`` and ``h100`` come first, then long ones. A name without such a word stays
    whole.
    """
    return {name: max(_own_words(name, names), key=_telling, default=name) for name in names}


def _own_words(name: str, names: Collection[str]) -> list[str]:
    """The words of ``name``, without numbers, that are no part of another of ``names``."""
    others = [other.lower() for other in names if other != name]
    words = [word for word in name.split("-") if word.isalnum() and not word.isdecimal()]
    return [word for word in words if not any(word.lower() in other for other in others)]


def _telling(word: str) -> tuple[bool, int]:
    """A sort key: the greater, the more a word tells."""
    return len(word) > 2 and any(map(str.isdecimal, word)), len(word)


def target_called(workspace: Workspace, name: str) -> Target:
    """The target with the runtime of ``workspace`` on the system with this name or key.

    Its version and allocator there may be others; the number of threads too, unless the options
    give it. Raises :class:`UsageError` if there is none, or more than one.
    """
    known = workspace.known.systems.targets()
    systems = systems_called((t.system for t in known), name)
    keys = {system.key for system in systems}
    targets = [target for target in known if target.system.key in keys]
    targets = targets or [*unmeasured_targets(systems, known)]
    runtime = workspace.runtime
    matching = [t for t in targets if t.runtime == as_there(runtime, t)]
    if workspace.options.threads is not None:
        matching = [t for t in matching if t.runtime.threads == runtime.threads]
    if not matching:
        raise UsageError(_unmeasured(workspace, name, targets))
    if len({t.system.key for t in matching}) > 1:
        listed = ", ".join(sorted({t.system.key for t in matching}))
        raise UsageError(f"several systems are called {name!r}: give one of their keys, {listed}")
    return max(matching, key=partial(nearness, runtime))


def card_called(workspace: Workspace, name: str) -> Target | None:
    """The target of recorded programs on the accelerator of the system with this name.

    The runtime of ``workspace`` may be another one. None for a system without an accelerator;
    raises :class:`UsageError` as :func:`systems_called` does.
    """
    known = workspace.known.systems.targets()
    systems = systems_called((target.system for target in known), name)
    keys = {system.key for system in systems if system.accelerator is not None}
    if not keys:
        return None
    targets = [target for target in known if target.system.key in keys]
    targets = targets or [*unmeasured_targets(systems, known)]
    of_programs = [target for target in targets if target.runtime.backend == PROGRAMS_RUNTIME]
    return max(of_programs, key=partial(nearness, workspace.runtime), default=None)


def _unmeasured(workspace: Workspace, name: str, targets: Sequence[Target]) -> str:
    """The error of a system that was measured with other runtimes or settings only."""
    runtime = workspace.runtime
    others = sorted({target.runtime.backend for target in targets} - {runtime.backend})
    if others and len(others) == len({target.runtime.backend for target in targets}):
        if any(target.system.accelerator is not None for target in targets):
            return (
                f"system {name!r} was measured with programs of {' and '.join(others)}, not with"
                f" models of {runtime.backend}: give FILE.py:FUNCTION, or a recorded program such"
                " as torch_bert"
            )
        return (
            f"system {name!r} was measured with {' and '.join(others)}, not with {runtime.backend}:"
            f" give --runtime {others[0]}, and a model that it runs"
        )
    counts = sorted({t.runtime.threads for t in targets if t.runtime == as_there(runtime, t)})
    if counts:
        return (
            f"system {name!r} was not measured with --threads {runtime.threads}, but with"
            f" {' and '.join(map(str, counts))}: leave the option out, or give one of these"
        )
    threads = "" if workspace.options.threads is None else f", {runtime.threads} threads"
    if runtime.copies > 1:
        threads += f", {runtime.copies} copies"
    return (
        f"system {name!r} has no measurements with {runtime.backend}{threads}, optimisation"
        f" {runtime.optimization} and granularity {workspace.granularity}: see 'bricks systems'"
    )


def as_there(runtime: Runtime, target: Target) -> Runtime:
    """The runtime of ``target`` with all settings of ``runtime`` that a user chooses.

    An accelerator decides the rest: how the runtime reaches it.
    """
    there = target.runtime
    provider = runtime.provider if target.system.accelerator is None else there.provider
    return replace(
        runtime,
        version=there.version,
        threads=there.threads,
        allocator=there.allocator,
        provider=provider,
        python=there.python,
    )


def nearness(runtime: Runtime, target: Target) -> tuple[object, ...]:
    """A sort key: of two targets of a system, the greater is more similar to ``runtime``."""
    there = target.runtime
    return (
        there.threads == runtime.threads,
        there.version == runtime.version,
        there.allocator == runtime.allocator,
        there.python == runtime.python,
        there.threads,
        version_numbers(there.version),
    )


def version_numbers(version: str) -> list[int]:
    """The numbers in a version, to compare versions by; a local part after ``+`` is ignored."""
    return [int(part) for part in re.findall(r"[0-9]+", version.partition("+")[0])]


def runtime_facts(
    targets: Sequence[Target], published: Collection[str]
) -> dict[str, list[dict[str, Any]]]:
    """JSON objects of the runtimes that each system was measured with, by key of the system.

    ``published`` are the keys of published targets.
    """
    names = names_of(targets)
    facts: dict[str, list[dict[str, Any]]] = {}
    for target in targets:
        own = {
            "target": target.key, "name": names[target.key], "published": target.key in published,
        }  # fmt: skip
        facts.setdefault(target.system.key, []).append({**target.runtime.to_json(), **own})
    return facts


def unmeasured_systems(name: str, known: Iterable[System]) -> list[System]:
    """A system with the card that ``name`` names, like one of ``known`` with another card.

    Empty where ``name`` names no card, or no known system has one. Raises
    :class:`~bricks.errors.NameUnknown` for a name that several cards have.
    """
    measured = [system for system in known if system.accelerator is not None]
    if not measured or not cards_called(name):
        return []
    accelerator = card_named(name).accelerator
    like = min(measured, key=lambda system: system.name)
    title = "-".join(accelerator.name.lower().split())
    identity = {**like.identity, ACCELERATOR: accelerator.to_json()}
    return [replace(like, name=title, identity=identity, recorded={})]


def unmeasured_targets(systems: Sequence[System], known: Sequence[Target]) -> Iterator[Target]:
    """``systems`` of :func:`unmeasured_systems` with the runtimes of measured cards."""
    runtimes = {t.runtime for t in known if t.system.accelerator is not None}
    for system in systems:
        if system.accelerator is not None:
            yield from (Target(system, runtime) for runtime in sorted(runtimes, key=str))
