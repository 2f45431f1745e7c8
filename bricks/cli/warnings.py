"""Warnings about models that make a latency less reliable or slower."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.cli.output import note
from bricks.errors import BricksError

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.system.target import Target

# Trained networks have a few; a larger share than this slows whole layers down.
MANY_DENORMALS = 0.01


def warn_of_denormals(model: Model) -> float | None:
    """Warn if many of a model's own weights are denormal; return their share, None if unknown."""
    from bricks.graph.denormals import denormal_share

    try:
        share = denormal_share(model)
    except BricksError as error:
        note(f"warning: {error}")
        return None
    if share is not None and share > MANY_DENORMALS:
        note(
            f"warning: {model.name}: {100 * share:.0f} % of its weights are denormal: a runtime may"
            " be many times slower than with ordinary ones (onnxruntime computes with float32 ones"
            " unless session.set_denormal_as_zero is set)"
        )
    return share


def warn_of_empty_inputs(model: Model) -> None:
    """Note inputs that the file leaves without elements: some exporters write 0 for any size."""
    for name in model.empty_inputs:
        note(
            f"{model.name}: input '{name}' has no elements, since the file fixes a dimension of it"
            " at 0: give --shape or --batch for another size"
        )


def warn_of_crowding(target: Target, workers: int) -> None:
    """Warn if there are too few processors for the workers to run in parallel."""
    from bricks.backends import describe_elsewhere

    needed = workers + target.runtime.threads
    there = target.system.processors
    if workers > 1 and describe_elsewhere(target.runtime.backend).timed and needed > there:
        note(
            f"warning: {workers} workers with --threads {target.runtime.threads} need {needed}"
            f" processors, one for the thread that waits for them, and {target.system.name} has"
            f" {there:.3g}: they run slower than in sequence, and estimates tell the order of"
            " magnitude alone"
        )
