"""Explains failures by changes to a model and by synthetic inputs, which a runtime cannot know.

A runtime reports the error. It does not know that the batch size was changed, or that an input is
synthetic; a runtime that crashes at an input without elements does not even name the input. It must
not know any command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.graph.model_metadata import known_values
from bricks.graph.view import graph_of, parse_model
from bricks.operators.integer_ranges import synthetic_inputs

if TYPE_CHECKING:
    from bricks.graph.model import Model

# Phrases about memory in error texts of worker and supervisor.
_MEMORY_PHRASES = ("out of memory", "lack of memory", "allocate memory", "bad_alloc")


def is_out_of_memory(reason: str) -> bool:
    """Whether the ``reason`` of a failure is that there was too little memory."""
    return any(phrase in reason for phrase in _MEMORY_PHRASES)


def given_inputs(model: Model) -> frozenset[str]:
    """Names of the inputs whose values the user gave."""
    return frozenset(known_values(parse_model(model.skeleton)))


def explain_failure(model: Model, reason: str) -> str:
    """A text to append to the ``reason`` of a failure: empty, or beginning with a space."""
    if is_out_of_memory(reason):
        return ""
    explanation = ""
    if model.rebatched:
        explanation += (
            " (its batch size was fixed, and another was asked for: the model may not allow that)"
        )
    empty = [*map(repr, model.empty_inputs)]
    if empty and not any(name in reason for name in empty):
        listed = ", ".join(empty)
        explanation += f" (without elements: {listed}; not every runtime takes that)"
    names = synthetic_inputs(graph_of(parse_model(model.skeleton)), specified=given_inputs(model))
    if names and "while running" in reason:
        listed = ", ".join(map(repr, names))
        explanation += f" (made up was {listed}: say with --value what it holds)"
    return explanation
