"""What to add to an error of a model that was not run as its file says, or not as was meant.

A runtime says what went wrong, not that a batch size was changed or an input made up. Must not
know who asks.
"""

from __future__ import annotations

from bricks.graph.domains import synthetic_inputs
from bricks.graph.model import Model
from bricks.graph.model_metadata import held_values
from bricks.graph.view import graph_of, parse_model
from bricks.measure.sampler import speaks_of_memory


def given_inputs(model: Model) -> frozenset[str]:
    """Inputs whose values were given."""
    return frozenset(held_values(parse_model(model.skeleton)))


def explain_failure(model: Model, reason: str) -> str:
    """What to add to the ``reason`` of a failure, beginning with a space; or nothing."""
    if speaks_of_memory(reason):
        return ""
    found = ""
    if model.rebatched:
        found += (
            " (its batch size was fixed, and another was asked for: the model may not allow that)"
        )
    names = synthetic_inputs(graph_of(parse_model(model.skeleton)), given=given_inputs(model))
    if names and "while running" in reason:
        listed = ", ".join(map(repr, names))
        found += f" (made up was {listed}: say with --value what it holds)"
    return found
