from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graphs import FLOATS, Maker, one_node, random_graph

from bricks.graph.model import Graph
from bricks.graph.types import TensorType
from bricks.operators.registry import flops


def f(*shape: int) -> TensorType:
    return TensorType("FLOAT", shape)


IMAGE, KERNEL = f(1, 8, 6, 6), f(16, 4, 3, 3)
MS = {"domain": "com.microsoft"}
CASES = {
    "grouped convolution": (
        one_node("Conv", IMAGE, KERNEL, out=f(1, 16, 4, 4), group=2),
        2 * 256 * 36,
    ),
    "with bias": (one_node("Conv", IMAGE, KERNEL, f(16), out=f(1, 16, 4, 4)), 256 * 73),
    "fused": (
        one_node(
            "FusedConv",
            IMAGE,
            KERNEL,
            f(16),
            f(1, 16, 4, 4),
            out=f(1, 16, 4, 4),
            activation="Relu",
            **MS,
        ),
        256 * 75,
    ),
    "transposed": (
        one_node("ConvTranspose", f(1, 8, 3, 3), f(8, 4, 2, 2), out=f(1, 4, 6, 6)),
        2 * 72 * 16,
    ),
    "gemm": (one_node("Gemm", f(5, 3), f(5, 7), out=f(3, 7), transA=1), 2 * 3 * 5 * 7),
    "gemm with bias": (one_node("Gemm", f(3, 5), f(7, 5), f(7), out=f(3, 7), transB=1), 231),
    "batched product": (one_node("MatMul", f(2, 3, 5), f(2, 5, 7), out=f(2, 3, 7)), 420),
    "product of vectors": (one_node("MatMul", f(5), f(5), out=f()), 10),
    "transposed batches": (
        one_node("FusedMatMul", f(2, 3, 5), f(5, 7), out=f(2, 3, 7), transBatchA=1, **MS),
        None,
    ),
    "einsum": (one_node("Einsum", f(2, 3), f(3, 4), out=f(2, 4), equation="ij,jk->ik"), 48),
    "einsum with dots": (one_node("Einsum", f(2, 3), out=f(3, 2), equation="...ij->...ji"), None),
    "einsum of diagonals": (one_node("Einsum", f(3, 3), out=f(3), equation="ii->i"), None),
    "lstm": (
        one_node("LSTM", f(5, 2, 3), f(1, 16, 3), f(1, 16, 4), out=f(5, 1, 2, 4)),
        2 * 10 * 16 * 7,
    ),
    "pooling": (one_node("MaxPool", IMAGE, out=f(1, 8, 3, 3), kernel_shape=[2, 2]), 4 * 72),
    "global pooling": (one_node("GlobalAveragePool", IMAGE, out=f(1, 8, 1, 1)), 288),
    "softmax": (one_node("Softmax", FLOATS), 80),
    "layer normalisation": (one_node("LayerNormalization", FLOATS, f(4)), 128),
    "reduction": (one_node("ReduceMean", FLOATS, out=f(1, 1)), 16),
    "broadcast sum": (one_node("Add", FLOATS, f(1)), 16),
    "sum of three": (one_node("Sum", FLOATS, FLOATS, FLOATS), 32),
    "movement": (one_node("Transpose", FLOATS), 0),
    "attention": (
        one_node("Attention", f(2, 5, 8), f(8, 24), f(24), out=f(2, 5, 8), num_heads=2, **MS),
        10 * 24 * 17 + 4 * 10 * 5 * 8 + 5 * 10 * 5 * 2,
    ),
    "grouped attention": (
        one_node(
            "GroupQueryAttention",
            *(f(2, 3, 16), f(2, 3, 4), f(2, 3, 4)),
            *2 * [f(2, 1, 7, 4)],
            out=f(2, 3, 16),
            num_heads=4,
            kv_num_heads=1,
            **MS,
        ),
        (4 * 4 + 5) * 2 * 4 * 3 * 10,
    ),
    "unknown": (one_node("Mystery", FLOATS), None),
    "of another domain": (one_node("Add", FLOATS, FLOATS, domain="org.example"), None),
}


@pytest.mark.parametrize("case", CASES)
def test_operators(case: str) -> None:
    graph, expected = CASES[case]
    assert flops(graph, [0]) == expected


def test_a_piece_does_the_work_of_its_nodes_or_none_is_known() -> None:
    graph = random_graph(3)
    nodes = range(len(graph.nodes))
    each = [flops(graph, [i]) for i in nodes]
    assert flops(graph, nodes) == sum(work for work in each if work is not None)
    maker = Maker()
    maker.node("Mystery", [maker.node("Relu", [maker.input("x")], ["h"])], ["y"])
    assert flops(maker.graph(), [0, 1]) is None


def test_missing_types_make_the_work_unknown() -> None:
    graph = one_node("MatMul", FLOATS, np.ones((4, 4), np.float32))
    bare: Graph = replace(graph, types={})
    assert flops(bare, [0]) is None
