"""One row of facts for each operator, under its names in ONNX and in PyTorch's library ATen.

A row says how much an operator computes, which values decide how long it takes, which integers it
accepts, what its kernel takes in memory and how its loops run. Separate so that a new operator is
one edit. Must not know bricks or plans, and which runtimes there are.

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
