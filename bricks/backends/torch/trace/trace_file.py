"""The file of a trace: events of the profiler, checked, as far as they are needed.

The format is Chrome's "Trace Event Format", with the names that Kineto gives categories and
arguments. Must not know operators.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bricks.backends.profiler_trace import TracedDevice
from bricks.errors import StoreError, later_format

_VERSION = 1
_GZIP = b"\x1f\x8b"
# Reading takes about ten times the bytes of the text.
_MAX_BYTES = 1 << 30
# The bytes in which a trace has its version, and the bytes of an unfinished text.
_HEAD_BYTES, _TAIL = 1 << 12, 8

CALLS, ANNOTATIONS = "cpu_op", "user_annotation"
LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
KERNELS = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_CATEGORIES = LAUNCHES | KERNELS | {CALLS, ANNOTATIONS}
SHAPES, STRIDES, VALUES, TYPES = "Input Dims", "Input Strides", "Concrete Inputs", "Input type"

Thread = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """An event with a duration on a thread of a process; times are in microseconds."""

    name: str
    category: str
    thread: Thread
    begin_us: float
    end_us: float
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TraceFile:
    """The events of a trace by category, the host's name, and its GPUs by their number."""

    events: Mapping[str, Sequence[TraceEvent]]
    host_name: str | None
    devices: Mapping[int, TracedDevice]

    def of(self, categories: Iterable[str]) -> list[TraceEvent]:
        """The events of several categories, in order of their begin."""
        chosen = (event for name in categories for event in self.events.get(name, ()))
        return sorted(chosen, key=lambda event: event.begin_us)


def begins_like_a_trace(path: Path) -> bool:
    """Whether the file begins with an object that has Kineto's version or events."""
    try:
        head = _content(path, _HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return False
    return head.lstrip().startswith(b"{") and (
        b'"schemaVersion"' in head or b'"traceEvents"' in head
    )


def read(path: Path) -> TraceFile:
    """Read a trace; :class:`StoreError` for one that is damaged, or of another version."""
    try:
        text = _content(path, _MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            raise refused(path, f"has more than {_MAX_BYTES >> 30} GiB: profile fewer steps")
        data = json.loads(text, strict=False)
    except (EOFError, zlib.error) as exc:
        raise refused(path, "is cut off: export it again") from exc
    except OSError as exc:
        raise StoreError(f"{path} cannot be read ({exc.strerror}): give another file") from exc
    except (ValueError, RecursionError) as exc:
        raise refused(path, _json_problem(exc)) from exc
    if not isinstance(data, dict):
        raise refused(path, "holds no trace: give what export_chrome_trace wrote")
    version = data.get("schemaVersion")
    if not isinstance(version, int):
        raise refused(path, "does not say its version: profile with a newer PyTorch")
    if version > _VERSION:
        raise StoreError(later_format(path, version, _VERSION))
    try:
        file = _file(data)
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise refused(path, "has events that the profiler does not write: export it again") from exc
    calls = file.events.get(CALLS, ())
    if not calls:
        raise refused(path, "holds no calls of operators: profile with ProfilerActivity.CPU too")
    if not any(SHAPES in call.args for call in calls):
        raise refused(path, "was written without shapes: profile with record_shapes=True")
    if not any(STRIDES in call.args and VALUES in call.args for call in calls):
        raise refused(path, "lacks the strides of tensors: profile with a newer PyTorch")
    return file


def refused(path: Path, problem: str) -> StoreError:
    """The error about a trace that is not used."""
    return StoreError(f"{path} {problem}; nothing was imported")


def _json_problem(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError) and error.pos >= len(error.doc.rstrip()) - _TAIL:
        return "is cut off: export it again"
    where = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
    return f"is no valid JSON{where}: export it again"


def _content(path: Path, most: int) -> bytes:
    """At most so many bytes of the uncompressed content."""
    with path.open("rb") as plain:
        packed = plain.read(len(_GZIP)) == _GZIP
        plain.seek(0)
        if not packed:
            return plain.read(most)
        with gzip.GzipFile(fileobj=plain) as file:
            return file.read(most)


def _file(data: Mapping[str, Any]) -> TraceFile:
    events: dict[str, list[TraceEvent]] = {}
    for event in data["traceEvents"]:
        category = event.get("cat")
        if event.get("ph") == "X" and category in _CATEGORIES:
            begin_us, thread = float(event["ts"]), (event["pid"], event["tid"])
            end_us, args = begin_us + max(0.0, float(event["dur"])), event.get("args", {})
            events.setdefault(category, []).append(
                TraceEvent(str(event["name"]), category, thread, begin_us, end_us, dict(args))
            )
    host_name = data.get("host_name")
    devices = {
        int(of["id"]): TracedDevice(
            name=str(of["name"]),
            memory_bytes=int(of["totalGlobalMem"]),
            multiprocessors=int(of["numSms"]),
            capability=f"{of['computeMajor']}.{of['computeMinor']}",
        )
        for of in data.get("deviceProperties", ())
    }
    return TraceFile(events, None if host_name is None else str(host_name), devices)
