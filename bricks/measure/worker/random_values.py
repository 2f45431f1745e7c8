"""Values that are others in each run of a model: random numbers, and what is computed from them.

Must not know what they are compared with.
"""

from __future__ import annotations

from bricks.graph.graph import Graph
from bricks.graph.topology import inner_nodes, used_values

# Operators that give other numbers at each run.
RANDOM_OPERATORS = frozenset(
    (
        "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli",
        "Multinomial",
    )
)  # fmt: skip


def random_values(graph: Graph) -> set[str]:
    """The names of values that are other ones in each run: random numbers, and what reads them."""
    found: set[str] = set()
    for node in graph.nodes:
        within = {each.op_type for each in (node, *inner_nodes(node))}
        if within & RANDOM_OPERATORS or found.intersection(used_values(node)):
            found.update(name for name in node.output if name)
    return found


def read_by_random(graph: Graph, random: set[str]) -> list[str]:
    """What nodes that compute random values read that is not random, by name; all numbers."""
    read = (
        n for node in graph.nodes if random.intersection(node.output) for n in used_values(node)
    )
    made = {name for node in graph.nodes for name in node.output} - random
    return [name for name in dict.fromkeys(read) if name in made]
