"""One row of facts for each operator, under its names in ONNX and in PyTorch's library ATen.

A row has an operator's work, the values that decide its latency, the integers that it accepts, its
kernel's workspace in memory and its inner loops. A new operator is one edit. Must not know bricks,
plans or runtimes.

    operator.py           ``Operator``, a row
    node.py               a node of a graph as rows see it, in both forms of models
    registry.py           all rows by domain and name
    FAMILY.py             the rows of a family, with the rules that only they have
    work.py               operations of nodes                     (``flops``)
    work_rules.py         rules that several families share
    dependence.py         values that decide how long nodes take
    restrictions.py       restrictions of integer inputs
    integer_ranges.py     the integers that an input may hold, from all of its uses
    steering.py           constants whose values belong to a model's identity
"""
