"""Notes on the nodes of a recorded graph.

Must not know which calls they are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import onnx

from bricks.graph.program import FREED


def noted(node: onnx.NodeProto, key: str) -> str:
    """The note under ``key`` of a node; empty if it has none."""
    return next((note.value for note in node.metadata_props if note.key == key), "")


def free_after(node: onnx.NodeProto, names: Sequence[str]) -> None:
    """Note that the memory of the values called ``names`` is free after a call."""
    before = json.loads(noted(node, FREED) or "[]")
    others = [note for note in node.metadata_props if note.key != FREED]
    del node.metadata_props[:]
    node.metadata_props.extend(others)
    freed = list(dict.fromkeys([*before, *names]))
    node.metadata_props.add(key=FREED, value=json.dumps(freed))
