"""Random architectures, as a search would propose them: convolutional networks and transformers.

Models in memory without weights, since latencies do not depend on them. An architecture follows
from its number alone, so everybody's thousand is the same. Sizes are those of models for phones and
servers at batch 1: from half a million to a billion multiplications. Must not know bricks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPSET = 20  # the first with Gelu

CNN, TRANSFORMER = "cnn", "transformer"


def architecture(number: int) -> onnx.ModelProto:
    """The architecture of this number: two of three are convolutional, the third a transformer.

    Its graph is called ``cnn_0000`` or ``transformer_0002``.
    """
    chance = random.Random(number)
    kind = TRANSFORMER if number % 3 == 2 else CNN
    net = _Net(f"{kind}_{number:04d}")
    if kind == CNN:
        _cnn(net, chance)
    else:
        _transformer(net, chance)
    return net.model()


class _Net:
    """A graph that grows at its end: ``end`` is its last value, ``shape`` that value's shape."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.end, self.shape = "input", list[int]()
        self._input = list[int]()
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []

    def begin(self, shape: Sequence[int]) -> None:
        """Take an input of this shape."""
        self.shape, self._input = list(shape), list(shape)

    def add(self, operator: str, *inputs: str, shape: Sequence[int], **attributes: Any) -> str:
        """Add a node, whose first output of ``shape`` is the new end."""
        self.end, self.shape = f"v{len(self._nodes)}", list(shape)
        self._nodes.append(helper.make_node(operator, inputs, [self.end], **attributes))
        return self.end

    def weight(self, *shape: int) -> str:
        """The name of a new weight, of which only the shape is known."""
        found = TensorProto(name=f"w{len(self._initializers)}", dims=shape)
        found.data_type, found.data_location = TensorProto.FLOAT, TensorProto.EXTERNAL
        found.external_data.add(key="location", value="weights")
        self._initializers.append(found)
        return found.name

    def constant(self, values: np.ndarray) -> str:
        """The name of a new constant."""
        name = f"c{len(self._initializers)}"
        self._initializers.append(numpy_helper.from_array(values, name))
        return name

    def at(self, value: str, shape: Sequence[int]) -> None:
        """Go on from an earlier value."""
        self.end, self.shape = value, list(shape)

    def act(self, operator: str) -> None:
        """An activation: ``Swish`` is a product with a sigmoid."""
        before = self.end
        if operator == "Swish":
            gate = self.add("Sigmoid", before, shape=self.shape)
            self.add("Mul", before, gate, shape=self.shape)
        else:
            self.add(operator, before, shape=self.shape)

    def conv(self, width: int, kernel: int, *, stride: int = 1, groups: int = 1) -> None:
        """A convolution with a bias that keeps the size, or divides it by ``stride``."""
        _, channels, size, _ = self.shape
        weights = self.weight(width, channels // groups, kernel, kernel), self.weight(width)
        after = [1, width, -(-size // stride), -(-size // stride)]
        self.add(
            "Conv", self.end, *weights, shape=after,
            kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4, group=groups,
        )  # fmt: skip

    def linear(self, width: int) -> None:
        """A product with a matrix, and a bias."""
        after = [*self.shape[:-1], width]
        self.add("MatMul", self.end, self.weight(self.shape[-1], width), shape=after)
        self.add("Add", self.end, self.weight(width), shape=after)

    def norm(self) -> None:
        """Normalise each token."""
        width = self.shape[-1]
        weights = self.weight(width), self.weight(width)
        self.add("LayerNormalization", self.end, *weights, shape=self.shape, axis=-1)

    def reshape(self, *shape: int) -> None:
        """Give the last value another shape."""
        self.add("Reshape", self.end, self.constant(np.array(shape)), shape=shape)

    def transpose(self, *order: int) -> None:
        """Give the last value's axes another order."""
        shape = [self.shape[axis] for axis in order]
        self.add("Transpose", self.end, shape=shape, perm=order)

    def model(self) -> onnx.ModelProto:
        """The model, with the last value as its output."""
        tensor = helper.make_tensor_value_info
        graph = helper.make_graph(
            self._nodes,
            self.name,
            [tensor("input", TensorProto.FLOAT, self._input)],
            [tensor(self.end, TensorProto.FLOAT, self.shape)],
            self._initializers,
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10
        )


# Convolutional networks

# A cell: the network, how its width, kernel and activation are chosen, and its stride.
_Cell = Callable[[_Net, int, int, str, int], None]


def _plain(net: _Net, width: int, kernel: int, act: str, stride: int) -> None:
    net.conv(width, kernel, stride=stride)
    net.act(act)


def _separable(net: _Net, width: int, kernel: int, act: str, stride: int) -> None:
    net.conv(net.shape[1], kernel, stride=stride, groups=net.shape[1])
    net.act(act)
    net.conv(width, 1)
    net.act(act)


def _bottleneck(net: _Net, width: int, kernel: int, act: str, stride: int) -> None:
    begin, shape = net.end, net.shape
    net.conv(width // 2, 1)
    net.act(act)
    net.conv(width // 2, kernel, stride=stride)
    net.act(act)
    net.conv(width, 1)
    end, after = net.end, net.shape
    if after != shape:
        net.at(begin, shape)
        net.conv(width, 1, stride=stride)
        begin = net.end
    net.add("Add", begin, end, shape=after)
    net.act(act)


def _inverted(net: _Net, width: int, kernel: int, act: str, stride: int) -> None:
    """An inverted residual with squeeze and excitation."""
    begin, shape = net.end, net.shape
    inside = 4 * shape[1]
    net.conv(inside, 1)
    net.act(act)
    net.conv(inside, kernel, stride=stride, groups=inside)
    net.act(act)
    wide, wide_shape = net.end, net.shape
    net.add("GlobalAveragePool", wide, shape=[1, inside, 1, 1])
    net.conv(max(8, inside // 8), 1)
    net.act("Relu")
    net.conv(inside, 1)
    gate = net.add("HardSigmoid", net.end, shape=net.shape, alpha=1 / 6)
    net.add("Mul", wide, gate, shape=wide_shape)
    net.conv(width, 1)
    if net.shape == shape:
        net.add("Add", begin, net.end, shape=shape)


def _dense(net: _Net, width: int, kernel: int, act: str, stride: int) -> None:
    """Two layers that see all before them, and a transition to ``width``."""
    for _ in range(2):
        begin, (_, channels, size, _) = net.end, net.shape
        net.conv(32, kernel)
        net.act(act)
        net.add("Concat", begin, net.end, shape=[1, channels + 32, size, size], axis=1)
    net.conv(width, 1, stride=stride)
    net.act(act)


_CELLS: tuple[_Cell, ...] = (_plain, _separable, _bottleneck, _inverted, _dense)


def _cnn(net: _Net, chance: random.Random) -> None:
    """A stem, three to five stages of equal cells, each half as large as the one before, a head."""
    size = chance.choice((96, 128, 160))
    act = chance.choice(("Relu", "LeakyRelu", "HardSwish", "Swish"))
    net.begin([1, 3, size, size])
    net.conv(chance.choice((16, 24, 32)), 3, stride=2)
    net.act(act)
    for stage in range(chance.randint(3, 5)):
        cell = chance.choice(_CELLS)
        width = chance.choice((24, 32, 48, 64)) * 2 ** min(stage, 2)
        kernel = chance.choice((3, 5))
        for number in range(chance.randint(1, 3)):
            cell(net, width, kernel, act, 2 if number == 0 else 1)
    channels = net.shape[1]
    net.add("GlobalAveragePool", net.end, shape=[1, channels, 1, 1])
    net.add("Flatten", net.end, shape=[1, channels])
    net.linear(chance.choice((10, 100, 1000)))


# Transformers


def _attention(net: _Net, heads: int, key: int) -> None:
    """Self-attention with ``heads`` of ``key`` channels each."""
    begin, shape = net.end, net.shape
    _, tokens, width = shape
    split = []
    for order in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)):
        net.at(begin, shape)
        net.linear(heads * key)
        net.reshape(1, tokens, heads, key)
        net.transpose(*order)
        split.append(net.end)
    queries, keys, values = split
    square = [1, heads, tokens, tokens]
    net.add("MatMul", queries, keys, shape=square)
    net.add("Mul", net.end, net.constant(np.array(key**-0.5, np.float32)), shape=square)
    net.add("Softmax", net.end, shape=square, axis=-1)
    net.add("MatMul", net.end, values, shape=[1, heads, tokens, key])
    net.transpose(0, 2, 1, 3)
    net.reshape(1, tokens, heads * key)
    net.linear(width)


def _mixer(net: _Net, act: str) -> None:
    """Mixes tokens by two products instead of attention."""
    _, tokens, _ = net.shape
    net.transpose(0, 2, 1)
    net.linear(2 * tokens)
    net.act(act)
    net.linear(tokens)
    net.transpose(0, 2, 1)


def _perceptron(net: _Net, inside: int, act: str, *, gated: bool) -> None:
    width, begin, shape = net.shape[-1], net.end, net.shape
    net.linear(inside)
    net.act(act)
    if gated:
        gate = net.end
        net.at(begin, shape)
        net.linear(inside)
        net.add("Mul", gate, net.end, shape=net.shape)
    net.linear(width)


def _transformer(net: _Net, chance: random.Random) -> None:
    """Embedded tokens, one to six layers of attention or mixing and a perceptron, a head."""
    tokens = chance.choice((32, 64, 128, 196))
    width = chance.choice((96, 128, 192, 256))
    key = chance.choice((32, 64))
    act = chance.choice(("Gelu", "Relu", "Swish"))
    gated = chance.random() < 0.3
    inside = width * chance.choice((2, 3, 4))
    net.begin([1, tokens, width])
    for _ in range(chance.randint(1, 6)):
        begin, shape = net.end, net.shape
        net.norm()
        if chance.random() < 0.25:
            _mixer(net, act)
        else:
            _attention(net, chance.choice((2, 3, 4)), key)
        begin = net.add("Add", begin, net.end, shape=shape)
        net.norm()
        _perceptron(net, inside, act, gated=gated)
        net.add("Add", begin, net.end, shape=shape)
    net.norm()
    net.add("ReduceMean", net.end, net.constant(np.array([1])), shape=[1, width], keepdims=0)
    net.linear(chance.choice((10, 100, 1000)))
