"""Events of a trace file, which opens in ui.perfetto.dev: slices and marks on tracks.

The JSON format of Chrome and Perfetto ("Trace Event Format"). Timestamps are microseconds, with
nanoseconds behind the point. Must not know what is traced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bricks.errors import printable

Event = dict[str, Any]

# Begin and end in nanoseconds.
Extent = tuple[int, int]

# Replaces a backslash: it looks like one.
BACKSLASH = "\N{REVERSE SOLIDUS OPERATOR}"


@dataclass(frozen=True, slots=True)
class Track:
    """A thread of a process, as viewers show it."""

    process: int
    thread: int = 0

    @property
    def ids(self) -> Event:
        """The ids of process and thread; some viewers would merge equal ids of threads."""
        return {"pid": self.process, "tid": 1000 * self.process + self.thread}


def named(track: Track, what: str, **args: Any) -> Event:
    """A fact about a process or a thread, such as its name (``what`` is ``process_name``)."""
    return {"ph": "M", "name": what, **track.ids, "args": args}


def slice_on(track: Track, name: str, extent: Extent, args: Mapping[str, Any]) -> Event:
    """An event with a duration: ``extent`` in nanoseconds."""
    begin, end = extent
    times = {"ts": begin / 1000, "dur": (end - begin) / 1000}
    return {"ph": "X", "name": printable(name), **track.ids, **times, "args": args}


def mark_on(track: Track, name: str, at: int, args: Mapping[str, Any]) -> Event:
    """An event without a duration, ``at`` nanoseconds."""
    return {
        "ph": "i", "s": "t", "name": printable(name), **track.ids, "ts": at / 1000, "args": args,
    }  # fmt: skip


class Rows:
    """Lays out slices on tracks, in nanoseconds, without overlaps.

    A slice without a duration would be drawn inside the next one with the same start: so each has
    at least a nanosecond, taken from the next.
    """

    def __init__(self) -> None:
        self._last: dict[Track, Extent] = {}

    def place(self, track: Track, begin_s: float, end_s: float) -> Extent:
        """The extent of the next slice in a track."""
        begin = max(nanoseconds(begin_s), self._last.get(track, (0, 0))[1])
        self._last[track] = begin, max(nanoseconds(end_s), begin + 1)
        return self._last[track]

    def inside(self, track: Track, begin_s: float, end_s: float) -> Extent:
        """The extent of a slice inside the last one of a track."""
        least, most = self._last.get(track, (0, nanoseconds(end_s)))
        begin = min(max(nanoseconds(begin_s), least), most)
        return begin, min(max(nanoseconds(end_s), begin), most)


def nanoseconds(seconds: float) -> int:
    """Whole nanoseconds."""
    return round(seconds * 1e9)


def microseconds(seconds: float) -> float:
    """Microseconds, to a nanosecond."""
    return nanoseconds(seconds) / 1000


def trace_file(about: Mapping[str, Any], events: Iterable[Event]) -> str:
    """The trace file, one event a line; ``about`` are facts of the whole trace."""
    head = _json({"displayTimeUnit": "ns", "otherData": about})
    lines = ",\n".join(map(_json, events))
    return f'{head[:-1]},"traceEvents":[\n{lines}\n]}}\n'


def _json(value: Any) -> str:
    """``value`` in the form that Perfetto reads: its only escape is that of a quotation mark.

    Perfetto shows other escapes literally, and reads a backslash at the end of a text as an escape
    of the quotation mark after it: then the whole file fails to load. All texts are printable, so
    nothing else needs an escape.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("\\\\", BACKSLASH)
