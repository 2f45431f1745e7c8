"""An ONNX model as a program of PyTorch: a module that calls its nodes' counterparts in order.

:func:`onnx_program` follows the contract of :mod:`bricks.backends.torch.entry`, so the program is
recorded, cut and measured as any other. Numbers that follow from shapes and constants are computed
in the first step alone. Must not know how programs are recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

from bricks.backends.torch.counterparts import OPERATORS, TorchNode, Value
from bricks.backends.torch.counterparts.node import no_counterpart
from bricks.errors import BackendError, first_line
from bricks.graph.input_values import ReferenceValues
from bricks.graph.payload import is_referenced
from bricks.graph.topology import default_domain
from bricks.graph.view import parse_model

_LISTS = (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS)


def onnx_program(model: str, data: str) -> dict[str, Any]:
    """Return the program of an ONNX file ``model``, with inputs and weights of the file ``data``.

    ``data`` is a :class:`~bricks.graph.input_values.ReferenceValues`. Raises
    :class:`BackendError` for the first operator without a counterpart.
    """
    proto = parse_model(Path(model).read_bytes())
    reference = ReferenceValues.load(Path(data))
    inputs = tuple(_tensor(reference.inputs[info.name]) for info in proto.graph.input)
    module = OnnxModule(proto, reference.weights).eval()
    with torch.no_grad():
        module(*inputs)
    return {"module": module, "inputs": inputs}


class OnnxModule(torch.nn.Module):
    """The nodes of ``proto`` in order; ``weights`` are those without values in it."""

    def __init__(self, proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> None:
        super().__init__()
        self._inputs = [info.name for info in proto.graph.input]
        self._outputs = [info.name for info in proto.graph.output]
        # Values that are the same in each step, by name.
        self._fixed = {
            tensor.name: numpy_helper.to_array(tensor)
            for tensor in proto.graph.initializer
            if not is_referenced(tensor)
        }
        versions = {default_domain(entry.domain): entry.version for entry in proto.opset_import}
        read = {name for node in proto.graph.node for name in node.input}.union(self._outputs)
        self._steps = [_NodeStep(node, versions.get("", 1), read) for node in proto.graph.node]
        self._weights = {}
        for number, (name, array) in enumerate(weights.items()):
            self._weights[name] = f"weight{number}"
            self.register_buffer(self._weights[name], _tensor(array))

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Compute the outputs of the model; a value is dropped after its last use."""
        values: dict[str, Value] = dict(zip(self._inputs, inputs, strict=True))
        values |= {name: getattr(self, buffer) for name, buffer in self._weights.items()}
        values |= self._fixed
        reads = Counter(name for step in self._steps for name in step.reads)
        reads.update(self._outputs)
        for step in self._steps:
            if not all(name in self._fixed for name in step.makes):
                inner = [values[name] if name else None for name in step.node.input]
                fixed = step.reads and all(isinstance(value, np.ndarray | None) for value in inner)
                results = step.fold(inner) if fixed else step.compute(inner)
                for name, value in zip(step.node.output, results, strict=False):
                    if name and value is not None:
                        values[name] = value
                        if isinstance(value, np.ndarray):
                            self._fixed[name] = value
            for name in step.reads:
                reads[name] -= 1
                if not reads[name]:
                    values.pop(name, None)
        outputs = (values[name] for name in self._outputs)
        return tuple(_tensor(v) if isinstance(v, np.ndarray) else v for v in outputs)


class _NodeStep:
    """A node of the model with constants that are kept between steps of the program."""

    def __init__(self, node: onnx.NodeProto, opset: int, read: set[str]) -> None:
        self.node = node
        self.reads = [name for name in node.input if name]
        self.makes = [name for name in node.output if name]
        self._opset = opset
        self._kept: dict[Any, Any] = {}
        self._attributes = {each.name: _attribute(each) for each in node.attribute}
        self._outputs_read = [name in read for name in node.output]
        self._compute = None if default_domain(node.domain) else OPERATORS.get(node.op_type)

    def compute(self, inputs: Sequence[Value | None]) -> Sequence[Value | None]:
        """Return the outputs of the node's counterpart."""
        if self._compute is None:
            raise no_counterpart(".".join(filter(None, (self.node.domain, self.node.op_type))))
        node = TorchNode(
            self.node.op_type, self._attributes, inputs, self._outputs_read, self._opset,
            self._constant, self._once,
        )  # fmt: skip
        try:
            outputs = self._compute(node)
        except (RuntimeError, IndexError, TypeError, ValueError) as exc:
            raise BackendError(f"PyTorch cannot run {node.operator}: {first_line(exc)}") from exc
        return outputs if isinstance(outputs, tuple | list) else [outputs]

    def fold(self, inputs: Sequence[Value | None]) -> Sequence[Value | None]:
        """Compute a node with fixed inputs alone, by onnx's own evaluator."""
        from onnx.reference import ReferenceEvaluator

        feeds = {name: v for name, v in zip(self.node.input, inputs, strict=True) if name}
        graph = helper.make_graph(
            [self.node], "fixed", [onnx.ValueInfoProto(name=name) for name in feeds],
            [onnx.ValueInfoProto(name=name) for name in self.makes],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", self._opset)]
        model = helper.make_model(graph, opset_imports=opsets)
        try:
            outputs = iter(ReferenceEvaluator(model).run(None, feeds))
        except Exception as exc:  # the evaluator's errors have no common base class
            raise no_counterpart(self.node.op_type, f"these numbers ({first_line(exc)})") from exc
        return [np.asarray(next(outputs)) if name else None for name in self.node.output]

    def _constant(self, array: np.ndarray) -> torch.Tensor:
        tensor: torch.Tensor = self._once(f"constant {id(array)}", lambda: _tensor(array))
        return tensor

    def _once(self, name: str, compute: Callable[[], Any]) -> Any:
        if name not in self._kept:
            self._kept[name] = compute()
        return self._kept[name]


def _attribute(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, bytes):
        return value.decode()
    if attribute.type == onnx.AttributeProto.STRINGS:
        return [text.decode() for text in value]
    return list(value) if attribute.type in _LISTS else value


def _tensor(array: np.ndarray) -> torch.Tensor:
    try:
        return torch.from_numpy(np.array(array))
    except TypeError as exc:
        raise BackendError(f"values of type {array.dtype} cannot be handed to PyTorch") from exc
