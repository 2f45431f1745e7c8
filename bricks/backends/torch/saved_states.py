"""The states of the generator of random numbers that a recorded step saves and restores, as calls.

Must not know when the generator changes; see :mod:`bricks.backends.torch.generator_states`.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from bricks.backends.torch.generator_states import GENERATOR, GET_STATE
from bricks.backends.torch.recorded_nodes import free_after, noted
from bricks.graph.program import PHASE, Call


class SavedStates:
    """The values that are states of the generator, and the calls after which each is saved."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # by digest
        # After None, a state is saved before the first call.
        self._saved: list[tuple[onnx.NodeProto | None, str]] = []
        self._restored: dict[str, onnx.NodeProto] = {}  # the last call that restores each

    def name_of(self, digest: str) -> str:
        """The value that is the state with this digest; empty if there is none."""
        return self._names.get(digest, "")

    def save(self, name: str, after: onnx.NodeProto | None) -> None:
        """Note that the value called ``name`` is the state ``after`` a call."""
        self._saved.append((after, name))

    def restore(self, digest: str, name: str, call: onnx.NodeProto) -> None:
        """Note that a ``call`` restores the state with this digest."""
        self._names[digest] = name
        self._restored[name] = call

    def among(self, nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """The calls, and those that save a state of the generator which others restore."""
        saved: dict[int, list[onnx.NodeProto]] = {}
        for call, name in self._saved:
            node = Call(GENERATOR, GET_STATE, ([], {})).node([], [name])
            node.metadata_props.add(key=PHASE, value=noted(call or nodes[0], PHASE))
            saved.setdefault(id(call), []).append(node)
            free_after(self._restored[name], [name])
        found = saved.get(id(None), [])
        for node in nodes:
            found += [node, *saved.get(id(node), ())]
        return found
