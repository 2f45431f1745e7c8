"""Readable names of targets: words that distinguish a target, joined by ``/``.

The cache identifies a target by a digest; users identify it by host, runtime and configuration, as
in ``amd-epyc-zen4-2c/onnxruntime-1.31.1/2-threads``. Any of these words in any order select a
target if no other target has them all. Must not know what is measured on a target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bricks.errors import UsageError

if TYPE_CHECKING:
    from bricks.system.target import Target

SEPARATOR = "/"

# Messages name at most this many targets; 'bricks systems' names all.
_MAX_NAMED = 3


def names_of(targets: Sequence[Target]) -> dict[str, str]:
    """A unique name for each of ``targets``, by key.

    It consists of the host's name, the runtime, its threads, and settings that are not the default.
    The host's key replaces its name if hosts share it; the target's key the whole name if targets
    still share it.
    """
    hosts = {target.system.key: _as_word(target.system.name) for target in targets}
    uses = Counter(hosts.values())
    names = {}
    for target in targets:
        host = hosts[target.system.key]
        words = [host if uses[host] == 1 else target.system.key, *_runtime_words(target)]
        names[target.key] = SEPARATOR.join(words)
    uses = Counter(names.values())
    return {key: name if uses[name] == 1 else key for key, name in names.items()}


def labels_of(systems: Mapping[str, str]) -> dict[str, str]:
    """The names of ``systems``, by key, followed by the key if several share a name."""
    uses = Counter(systems.values())
    return {k: name if uses[name] == 1 else f"{name} ({k})" for k, name in systems.items()}


def target_named(text: str, targets: Sequence[Target]) -> Target:
    """The target whose name has all the words in ``text``, or whose key begins with ``text``.

    Where no target has them, a part of the host's name will do: ``zen5/2-threads``.
    Raises :class:`UsageError` if none of ``targets`` matches, or more than one does.
    """
    words = [word.strip() for word in text.split(SEPARATOR)]
    names = names_of(targets)
    exact = [target for target in targets if names[target.key] == text]
    if exact:  # other targets may have all of its words, and more
        return exact[0]
    matches = [target for target in targets if all(_has(target, word) for word in words)]
    matches = matches or [
        target
        for target in targets
        if all(_has(target, w) or w.lower() in target.system.name.lower() for w in words)
    ]
    if len(matches) == 1 and all(words):
        return matches[0]
    if not targets:
        raise UsageError(f"there is no target {text!r}: the cache knows none, measure on one first")
    if len(matches) > 1 and all(words):
        raise UsageError(
            f"{text!r} may be {_listed([names[target.key] for target in matches])}:"
            f" add words, with {SEPARATOR!r} between them, that only one of them has"
        )
    raise UsageError(
        f"no target of the cache is called {text!r}; it knows {_listed(list(names.values()))}:"
        f" give a name, words of it with {SEPARATOR!r} between them, or the beginning of a key"
    )


def _has(target: Target, word: str) -> bool:
    system, runtime = target.system, target.runtime
    keys = (target.key, system.key)
    if word.startswith(("t1-", "s1-")) and any(key.startswith(word) for key in keys):
        return True
    return word in {
        system.name,
        _as_word(system.name),
        *_runtime_words(target),
        runtime.backend,
        runtime.version,
        runtime.provider,
        f"{runtime.threads}-thread{'' if word.endswith('d') else 's'}",
        f"optimization={runtime.optimization}",
        f"bricks={runtime.brick_optimization}",
    }


def _runtime_words(target: Target) -> list[str]:
    """The words in the target's name, without the host's."""
    runtime = target.runtime
    words = [
        f"{runtime.backend}-{runtime.version}",
        f"{runtime.threads}-thread{'' if runtime.threads == 1 else 's'}",
    ]
    if runtime.optimization != "all":
        words.append(f"optimization={runtime.optimization}")
    if runtime.brick_optimization != "none":  # whole layers, which the runtime optimises
        words.append(f"bricks={runtime.brick_optimization}")
    if runtime.python is not None:
        words.append(f"python-{runtime.python}")
    return words


def _as_word(name: str) -> str:
    return name.replace(SEPARATOR, "-")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED
    listed = ", ".join(sorted(names)[:_MAX_NAMED])
    return f"{listed} and {more} more ('bricks systems')" if more > 0 else listed
