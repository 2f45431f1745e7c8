"""The command line as it was typed, and when: errors make commands of it, budgets count from it.

Here because options know only their values, not how a person wrote them. Must not know commands,
nor what options mean, except those that it replaces.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

_typed: ContextVar[tuple[str, ...]] = ContextVar("_typed", default=())

# Options without a value, before which a model's name may stand.
_FLAGS = frozenset(("--json", "--quiet", "-q", "--verbose", "-v", "--verify"))


def remember(arguments: Sequence[str]) -> None:
    """Keep the words after ``bricks``."""
    _typed.set(tuple(arguments))


def with_options(options: Sequence[str], others: Collection[str]) -> str | None:
    """The typed command without ``others``, words of other models, and with ``options``.

    ``options`` replace typed ones of the same inputs. None if nothing was typed.
    """
    if not _typed.get():
        return None
    replaced = {text.rpartition("=")[0] for text in options if "=" in text}
    kept: list[str] = []
    words = list(_typed.get())
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name in ("--shape", "--batch"):
            value = value if equals else words.pop(0) if words else ""
            if name in options and (name == "--batch" or value.rpartition("=")[0] in replaced):
                continue
            kept += [name, value]
        elif word not in others or (kept and kept[-1].startswith("-") and kept[-1] not in _FLAGS):
            kept.append(word)
    return shlex.join(["bricks", *kept, *options])


@dataclass
class _Clock:
    """The time at which a command began.

    The first command of a process began when this module was imported, others begin later.
    """

    began_s: float = field(default_factory=time.monotonic)
    first: bool = True


_clock = _Clock()


def begin() -> None:
    """Note that a command begins now."""
    if not _clock.first:
        _clock.began_s = time.monotonic()
    _clock.first = False


def began_s() -> float:
    """The time at which the command began, in seconds of ``time.monotonic()``."""
    return _clock.began_s
