"""``bricks networks``: the accuracy of whole models over runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from bricks.cli.options import (
    Batch,
    CommonOptions,
    Models,
    Shapes,
    Values,
    read_all,
    takes_options,
)
from bricks.cli.output import finish, print_json, show
from bricks.cli.runtimes import ComparingRuntimes, Repeats, open_workspaces, runtime_facts
from bricks.sources import Unread
from bricks.units.facts import json_of

if TYPE_CHECKING:
    from bricks.graph.model import Model

Tolerance = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        metavar="SHARE",
        show_default="0.001, of 16-bit floats 0.02",
        help="The greatest difference of a value that is no error, relative to the greatest value.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOptions(ComparingRuntimes):
    """Options of ``bricks networks``."""

    models: Models
    batch: Batch = None
    shape: Shapes = None
    value: Values = None


@takes_options
def networks(options: NetworkOptions, repeats: Repeats = 3, tolerance: Tolerance = None) -> None:
    """Compare what whole models compute over runtimes, and find the first operator that errs.

    Outputs are held against a reference in double precision and against each other; of an ONNX
    model, every value too. Of a PyTorch program, outputs or loss and gradients are held against the
    same step in double. Nothing is timed. The exit status is 1 where a model was run by none.
    Example: bricks networks squeezenet --runtime onnxruntime --runtime mxnet
    """
    from bricks.studies.numerics.networks import compare_networks

    read = [model for word in options.models for model in _read(options, word)]
    errors = [model.error for model in read if isinstance(model, Unread)]
    models = [model for model in read if not isinstance(model, Unread)]
    with open_workspaces(options) as opened:
        found = compare_networks(models, opened.workspaces, repeats=repeats, tolerance=tolerance)
        facts = {
            **runtime_facts(opened),
            "runtimes": [workspace.target.runtime.to_json() for workspace in opened.workspaces],
            "models": json_of(found),
        }
    for result in facts["models"]:
        runs = result["runtimes"]
        if all(run["error"] for run in runs):
            errors.append(f"{result['model']}: nothing ran: {runs[0]['error']}")
    if options.json:
        print_json(facts)
    elif found:
        from bricks.report.operators import network_lines, network_table

        show(network_table(found), *network_lines(found))
    finish(errors)


def _read(options: NetworkOptions, word: str) -> Sequence[Model | Unread]:
    """The models that a word names; each by itself, since programs are recorded with PyTorch."""
    return read_all(
        CommonOptions(
            models=[word], batch=options.batch, shape=options.shape, value=options.value,
            seed=options.seed, threads=options.threads,
        )
    )  # fmt: skip
