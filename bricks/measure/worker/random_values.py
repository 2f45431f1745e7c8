"""Finds the values of a model that differ in each run: random numbers, and values that read them.

Must not know what values are compared with.
"""

from __future__ import annotations

from bricks.graph.graph import Graph
from bricks.graph.topology import inner_nodes, used_values

# Operators whose outputs differ in each run.
RANDOM_OPERATORS = frozenset(
    (
        "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli",
        "Multinomial",
    )
)  # fmt: skip


def random_values(graph: Graph) -> set[str]:
    """The names of values that differ in each run: random numbers, and values that read them."""
    random: set[str] = set()
    for node in graph.nodes:
        operators = {inner.op_type for inner in (node, *inner_nodes(node))}
        if operators & RANDOM_OPERATORS or random.intersection(used_values(node)):
            random.update(name for name in node.output if name)
    return random


def read_by_random(graph: Graph, random: set[str]) -> list[str]:
    """Names of computed, not random values that are read by nodes with random outputs."""
    read = (
        n for node in graph.nodes if random.intersection(node.output) for n in used_values(node)
    )
    made = {name for node in graph.nodes for name in node.output} - random
    return [name for name in dict.fromkeys(read) if name in made]
