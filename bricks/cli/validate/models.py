"""``bricks validate models``: the accuracy of whole models over runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from bricks.cli.command import command
from bricks.cli.options import CommonOptions, ModelOptions, RuntimeOptions, ShapedModels
from bricks.cli.output import finish, note, print_json, show
from bricks.cli.reading import read_all
from bricks.cli.runtimes import (
    RuntimeComparison,
    note_missing,
    open_first,
    repeats_option,
    runtimes_of,
)
from bricks.studies.options import option

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.sources import Unread


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedModels:
    """The models that are compared, how often each is evaluated, and the tolerated error."""

    models: ShapedModels
    repeats: int = repeats_option(3)
    tolerance: float | None = option(
        "The greatest difference of a value that is no error, relative to the greatest value.",
        default=None, least=0.0, metavar="SHARE", shown="0.001, of 16-bit floats 0.02",
    )  # fmt: skip


@command
def models(options: RuntimeComparison, compared: ComparedModels) -> None:
    """Compare what whole models compute over runtimes, and find the first operator that errs.

    Outputs are held against a reference in double precision and against each other; of an ONNX
    model, every value too. Of a PyTorch program, outputs or loss and gradients are held against the
    same step in double. Nothing is timed. The exit status is 1 where a model was run by none.
    Example: bricks validate models squeezenet --runtime onnxruntime --runtime mxnet
    """
    from bricks.studies.numerics.study import NetworkComparisonOptions, NetworkStudy
    from bricks.studies.study import ask
    from bricks.units.facts import json_of

    asked = NetworkComparisonOptions(
        models=_read(options, compared.models), runtimes=runtimes_of(options),
        repeats=compared.repeats, tolerance=compared.tolerance,
    )  # fmt: skip
    with open_first(options) as workspace:
        result = ask(NetworkStudy(asked, workspace, note))
    note_missing(result.missing)
    if options.general.json:
        print_json(json_of(result))
    elif result.networks:
        from bricks.report.operators import network_lines, network_table

        show(network_table(result.networks), *network_lines(result.networks))
    finish(result.errors)


def _read(options: RuntimeComparison, models: ShapedModels) -> Sequence[Model | Unread]:
    """Read the models word by word, since programs are recorded with PyTorch."""
    common = CommonOptions(
        general=options.general,
        models=ModelOptions(**asdict(models), seed=options.seed),
        runtime=RuntimeOptions(threads=options.runtimes.threads),
    )
    return [
        model
        for word in models.words
        for model in read_all(replace(common, models=replace(common.models, words=[word]))).models
    ]
