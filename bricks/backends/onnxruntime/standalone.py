"""A whole model in files of its own, loaded and run as users do: for its memory, not its latency.

Timed sessions share an arena and get their weights as OrtValues, so that the memory of a single one
says little. Here a model is a file with its weights, and its session has the runtime's default
settings. Must not know how memory is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime as ort

from bricks.backends.onnxruntime.sessions import default_options
from bricks.backends.onnxruntime.values import PROVIDERS, to_value, translated
from bricks.graph.payload import WeightReference, is_referenced, set_reference, store_inline

if TYPE_CHECKING:
    from bricks.backends.onnxruntime.synthetic_data import Inputs

_MODEL, _WEIGHTS = "model.onnx", "model.onnx.data"

# As onnx.save_model does: smaller weights stay in the model's file, others begin with a page.
_MIN_BYTES, _PAGE_BYTES = 1024, 4096


def write_standalone(
    proto: onnx.ModelProto, weights: Mapping[str, np.ndarray], folder: Path, *, inline: bool
) -> Path:
    """Write a model and its weights to ``folder``; return the path of the model's file.

    With ``inline``, the weights are in that file too.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    with (folder / _WEIGHTS).open("wb") as file:
        for tensor in copy.graph.initializer:
            if not is_referenced(tensor):
                continue
            values = weights[tensor.name]
            if inline or values.nbytes < _MIN_BYTES:
                store_inline(tensor, values)
                continue
            file.seek(-(-file.tell() // _PAGE_BYTES) * _PAGE_BYTES)
            set_reference(tensor, WeightReference(_WEIGHTS, file.tell(), values.nbytes))
            file.write(np.ascontiguousarray(values).data)
    path = folder / _MODEL
    path.write_bytes(copy.SerializeToString())
    return path


class StandaloneSession:
    """A session for the model in the file ``path``, optimised at ``level``, and its inputs."""

    def __init__(self, path: Path, inputs: Inputs, level: str) -> None:
        self._path, self._inputs, self._level = path, inputs, level
        self._session: ort.InferenceSession | None = None
        self._values: dict[str, ort.OrtValue] = {}

    def load(self) -> None:
        """Create its session."""
        with translated("creating a session"):
            self._session = ort.InferenceSession(
                str(self._path), default_options(self._level), providers=PROVIDERS
            )

    def run(self) -> None:
        """Run it once; the runtime allocates the outputs."""
        session = self._session
        assert session is not None, "load it first"
        if not self._values:
            self._values = {n: to_value(make(), type_) for n, (make, type_) in self._inputs.items()}
        binding = session.io_binding()
        for name, value in self._values.items():
            binding.bind_ortvalue_input(name, value)
        for output in session.get_outputs():
            binding.bind_output(output.name)
        with translated("running it"):
            session.run_with_iobinding(binding)
