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
from bricks.cli.output import finish, print_json, remark, show
from bricks.cli.runtimes import ComparingRuntimes, Repeats, open_first, runtimes_of, tell_missing

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.sources import Unread

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
class Networks(ComparingRuntimes):
    """Options of ``bricks networks``."""

    models: Models
    batch: Batch = None
    shape: Shapes = None
    value: Values = None


@takes_options
def networks(options: Networks, repeats: Repeats = 3, tolerance: Tolerance = None) -> None:
    """Compare what whole models compute over runtimes, and find the first operator that errs.

    Outputs are held against a reference in double precision and against each other; of an ONNX
    model, every value too. Of a PyTorch program, outputs or loss and gradients are held against the
    same step in double. Nothing is timed. The exit status is 1 where a model was run by none.
    Example: bricks networks squeezenet --runtime onnxruntime --runtime mxnet
    """
    from bricks.studies.numerics.options import NetworkOptions
    from bricks.studies.numerics.study import NetworkStudy
    from bricks.studies.study import ask
    from bricks.units.facts import json_of

    asked = NetworkOptions(
        models=[model for word in options.models for model in _read(options, word)],
        runtimes=runtimes_of(options), repeats=repeats, tolerance=tolerance,
    )  # fmt: skip
    with open_first(options) as workspace:
        found = ask(NetworkStudy(asked, workspace, remark))
    tell_missing(found.missing)
    if options.json:
        print_json(json_of(found))
    elif found.networks:
        from bricks.report.operators import network_lines, network_table

        show(network_table(found.networks), *network_lines(found.networks))
    finish(found.errors)


def _read(options: Networks, word: str) -> Sequence[Model | Unread]:
    """The models that a word names; each by itself, since programs are recorded with PyTorch."""
    return read_all(
        CommonOptions(
            models=[word], batch=options.batch, shape=options.shape, value=options.value,
            seed=options.seed, threads=options.threads,
        )
    )  # fmt: skip
