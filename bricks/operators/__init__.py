"""One row of facts for each operator, under its names in ONNX and in PyTorch's library ATen.

A row has an operator's work, the values that decide its latency, the integers that it accepts, its
kernel's workspace in memory and its inner loops. A new operator is one edit. Must not know bricks,
plans or runtimes.

    operator.py           ``Operator``, a row, and rules that several families share
    node.py               a node of a graph as rows see it, in both forms of models
    registry.py           all rows by domain and name; operations of nodes (``flops``)
    FAMILY.py             the rows of a family, with the rules that only they have
    dependence.py         values that decide how long nodes take, or count for identity
    integer_ranges.py     the integers that an input may hold, from all of its uses
"""
