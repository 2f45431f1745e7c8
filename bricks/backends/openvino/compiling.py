"""Read and compile models with OpenVINO: its settings, weights by address, its errors.

Weights are not serialised: the model refers to them by their addresses in memory, which OpenVINO's
reader of ONNX files takes as a file of external data. Must not know bricks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import onnx
import openvino as ov

from bricks.errors import BackendError, BricksError, first_line
from bricks.graph.payload import WeightReference, is_referenced, set_reference

if TYPE_CHECKING:
    import numpy as np

# The location of external data in memory; their offset is an address.
_IN_MEMORY = "*/_ORT_MEM_ADDR_/*"

# Positions in OpenVINO's source code, which begin its messages.
_SOURCE_POSITION = re.compile(r"(?:Exception from |Check '.*?' failed at )?src/\S+:\d+:?\s*")

# Nodes of OpenVINO's own graph that it was checking, by names that no model has.
_ITS_NODES = re.compile(
    r"While validating (?:ONNX )?node '.*?'(?: with friendly_name '.*?')?:\s*"
    r"|Shape inference input shapes \{.*?\}\s+"
)

# Operators of the model that it cannot convert: those that it does not have, and one that it
# refuses, with its reason.
_LACKING = re.compile(r"No conversion rule found for operations: (.+)")
_REFUSED = re.compile(r"^-- (\S+) with a message:\n(.*?)(?=^-- |^Summary:|\Z)", re.M | re.S)
_OPERATOR = re.compile(r"(\S+)-(\d+)")

# An operator of its own, which it makes of a sequence that leaves a model.
_SEQUENCE = "util::SequenceMark"


class Compiler:
    """Compiles models for the processor, all with one stream and threads that are not pinned.

    Without ``precision``, OpenVINO would choose bfloat16 where the processor has it. Threads may
    share a core, so that there are as many as requested.
    """

    def __init__(self, threads: int, precision: str) -> None:
        self._core = ov.Core()
        self.precision = precision
        self._settings = {
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "ENABLE_CPU_PINNING": False,
            "ENABLE_HYPER_THREADING": True,
        }

    def read(self, proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> ov.Model:
        """``proto`` as OpenVINO's own graph; the arrays of ``weights`` must stay where they are."""
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        for tensor in copy.graph.initializer:
            if is_referenced(tensor):
                _refer_to_memory(tensor, weights[tensor.name])
        with translated("reading the model"):
            return self._core.read_model(copy.SerializeToString())

    def compile(self, model: ov.Model, *, counted: bool = False) -> ov.CompiledModel:
        """``model``, ready to run; with counters of its kernels if ``counted``."""
        with translated("compiling the model"):
            return self._core.compile_model(model, "CPU", self._settings | {"PERF_COUNT": counted})


def _refer_to_memory(tensor: onnx.TensorProto, values: np.ndarray) -> None:
    if values.nbytes:
        set_reference(tensor, WeightReference(_IN_MEMORY, values.ctypes.data, values.nbytes))
    else:
        del tensor.external_data[:]
        tensor.data_location = onnx.TensorProto.DEFAULT
        tensor.raw_data = b""


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn any exception of OpenVINO into a :class:`BackendError` of one line."""
    try:
        yield
    except (BricksError, MemoryError):
        raise
    except Exception as exc:  # its errors have no common base class
        text = _reason(str(exc))
        if "bad_alloc" in text or "allocate memory" in text:
            raise MemoryError(text) from exc
        raise BackendError(f"OpenVINO failed while {doing}: {text}") from exc


def _reason(text: str) -> str:
    """What OpenVINO says, in one line, without its own nodes and positions in its source."""
    if (lacking := _LACKING.search(text)) is not None:
        if _SEQUENCE in lacking[1]:
            return "it passes no sequences of tensors into or out of a model, and so of a brick"
        return f"it has no {_OPERATOR.sub(_of_opset, lacking[1])}"
    if (refused := _REFUSED.search(text)) is not None:
        text = f"it refuses {_OPERATOR.sub(_of_opset, refused[1])}: {refused[2]}"
    return first_line(Exception(_ITS_NODES.sub("", _SOURCE_POSITION.sub("", text))))


def _of_opset(operator: re.Match[str]) -> str:
    return f"{operator[1]} (opset {operator[2]})"
