"""Sessions that record when they run each node (``SessionOptions.enable_profiling``).

The runtime records whole microseconds. It records a node when the node ends, after the nodes of its
body, and a run after all of its nodes. Recording takes a microsecond or two per node. Must not know
bricks.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bricks.backends.base import Binding, NodeEvent
from bricks.backends.onnxruntime.values import translated
from bricks.errors import BackendError

if TYPE_CHECKING:
    import onnxruntime as ort

    from bricks.backends.onnxruntime.loaded import LoadedSession

_NODE, _RUN, _SUFFIX = "Node", "model_run", "_kernel_time"

# Nodes that the runtime adds where layouts change; their numbered names differ in each session.
_ADDED = frozenset(("ReorderInput", "ReorderOutput"))


def profiling(options: ort.SessionOptions, folder: str) -> ort.SessionOptions:
    """``options`` for a session that writes its profile into ``folder``."""
    options.enable_profiling = True
    options.profile_file_prefix = str(Path(folder) / "profile")
    return options


class ProfiledSession:
    """A session created with :func:`profiling`; every value has memory of its own.

    If its nodes were renamed to their positions, ``names`` are their original names.
    ``folder`` is removed at the end.
    """

    def __init__(
        self,
        loaded: LoadedSession,
        folder: tempfile.TemporaryDirectory[str],
        names: Sequence[str] = (),
    ) -> None:
        self._session, self._folder, self._names = loaded.session, folder, names
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        separate = Binding.separate(len(inputs), len(outputs))
        self._bound = loaded.bind(separate, np.zeros(0, np.uint8))

    def sample(self) -> float:
        """Run once; the latency in seconds."""
        return self._bound.sample().host_s

    def runs(self) -> list[list[NodeEvent]]:
        """The nodes of each run so far; ends the profile."""
        with translated("ending its profile"):
            file = Path(self._session.end_profiling())
        try:
            entries = json.loads(file.read_bytes())
            return [[*self._events(run, nodes)] for run, nodes in _by_run(entries)]
        except (OSError, ValueError, LookupError, TypeError) as exc:
            raise BackendError(
                f"the runtime's profile cannot be read ({type(exc).__name__}): there is none"
            ) from exc
        finally:
            self._folder.cleanup()

    def _events(
        self, run: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]
    ) -> Iterator[NodeEvent]:
        for entry, inner in zip(nodes, _inner(nodes), strict=True):
            name, operator = str(entry["name"]).removesuffix(_SUFFIX), str(entry["args"]["op_name"])
            if self._names and not inner:
                name = self._names[int(name)]
            begin_us = entry["ts"] - run["ts"]
            yield NodeEvent(
                name="" if operator in _ADDED else name,
                operator=operator,
                begin_s=begin_us * 1e-6,
                end_s=(begin_us + entry["dur"]) * 1e-6,
                thread=int(entry["tid"]),
                inner=inner,
            )


def _by_run(
    entries: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[Mapping[str, Any], list[Mapping[str, Any]]]]:
    """The profile entry of each run, with the entries of its nodes."""
    nodes: list[Mapping[str, Any]] = []
    for entry in entries:
        if entry.get("cat") == _NODE and str(entry["name"]).endswith(_SUFFIX):
            nodes.append(entry)
        elif entry.get("name") == _RUN:
            yield entry, nodes
            nodes = []


def _inner(nodes: Sequence[Mapping[str, Any]]) -> list[bool]:
    """For each node, whether it ran inside another node on the same thread.

    In reverse order, an outer node precedes its inner ones. A node that ended before the outer one
    began is outside of it.
    """
    outer_us: dict[int, int] = {}  # start of the latest outermost node, by thread
    are_inner = []
    for entry in reversed(nodes):
        thread, end_us = entry["tid"], entry["ts"] + entry["dur"]
        inner = thread in outer_us and end_us > outer_us[thread]
        if not inner:
            outer_us[thread] = entry["ts"]
        are_inner.append(inner)
    return are_inner[::-1]
