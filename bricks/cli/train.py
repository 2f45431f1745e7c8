"""``bricks train``: how long a program takes to learn, predicted from bricks beside measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bricks.cli import completion
from bricks.cli.options import (
    Batch,
    Cache,
    Json,
    Measuring,
    Precision,
    RuntimeName,
    Threads,
    Timeout,
    open_bench,
)
from bricks.cli.output import finish, print_json, show
from bricks.cli.pages import check_page, today, write_page
from bricks.cli.verbosity import Quiet, Verbose
from bricks.cli.warnings import warn_of_crowding
from bricks.errors import UsageError
from bricks.session.defaults import CACHE, PRECISION, PROGRAMS_RUNTIME, TIMEOUT_S

if TYPE_CHECKING:
    from bricks.studies.training.result import (
        PredictedTime,
        TrainingFailure,
        TrainingResult,
        TrainingRun,
    )
    from bricks.studies.training.validation import TrainingValidation

Workload = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD",
        autocompletion=completion.workloads,
        help="FILE.py:FUNCTION, module:FUNCTION, or a workload of the zoo such as digits_cnn.",
    ),
]
Until = Annotated[
    str,
    typer.Option(metavar="accuracy=A", help="When a training ends, computed after each epoch."),
]
Seeds = Annotated[
    int, typer.Option(min=1, max=1000, metavar="N", help="Train from so many seeds, from 0 on.")
]
MaxEpochs = Annotated[
    int, typer.Option(min=1, metavar="N", help="End a training that is not accurate by then.")
]
Folder = Annotated[
    Path, typer.Option(metavar="FOLDER", help="Where checkpoints and finished trainings are kept.")
]
Again = Annotated[
    bool, typer.Option("--again", help="Train anew what is kept, and time loading anew.")
]
Validate = Annotated[
    bool,
    typer.Option(
        "--validate",
        help="First check gradients, the optimiser and the sampler, against differences,"
        " definitions and chance.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.html", help="Write the loss curves into one page.", show_default=False
    ),
]

_GOAL = re.compile(r"accuracy=(\d+(?:\.\d*)?|\.\d+)")


def train(
    workload: Workload,
    until: Until = "accuracy=0.95",
    seeds: Seeds = 1,
    max_epochs: MaxEpochs = 50,
    validate: Validate = False,
    out: Out = None,
    folder: Folder = Path("cache/training"),
    again: Again = False,
    batch: Batch = None,
    runtime: RuntimeName = PROGRAMS_RUNTIME,
    threads: Threads = None,
    precision: Precision = PRECISION,
    timeout: Timeout = TIMEOUT_S,
    json: Json = False,
    cache: Cache = CACHE,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train a PyTorch program until it is accurate, and tell how long that takes and was to take.

    The step is predicted from its bricks; loading a batch and evaluating are timed as a whole. An
    interrupted training goes on from its last epoch. docs/levels.md says what a workload returns.
    Example: bricks train digits_cnn --until accuracy=0.95 --seeds 5 --threads 1
    """
    from bricks.studies.training.train import train as train_program
    from bricks.studies.training.validation import validate_training

    accuracy = _accuracy(until)
    if out is not None:
        check_page(out)
    options = Measuring(
        models=[workload], json=json, cache=cache, batch=batch, runtime=runtime, threads=threads,
        precision=precision, timeout=timeout, quiet=quiet, verbose=verbose,
    )  # fmt: skip
    validation = None
    with open_bench(options) as bench:
        warn_of_crowding(bench.target, 1)
        if validate:
            validation = validate_training(bench, workload, batch=batch)
        result = train_program(
            bench, workload, until=accuracy, seeds=range(seeds), max_epochs=max_epochs,
            batch=batch, folder=folder, again=again,
        )  # fmt: skip
    if out is not None:
        _write_page(out, result)
    facts = _facts(result, validation, out)
    if json:
        print_json(facts)
    else:
        from bricks.report.training import training_parts

        show(*training_parts(facts))
        if out is not None:
            show("", f"{out}: the loss of each seed; open it in any browser.")
    finish([*(() if validation is None else validation.errors), *_errors(result)])


def _accuracy(text: str) -> float:
    found = _GOAL.fullmatch(text.strip())
    value = float(found[1]) if found else 0.0
    if not 0 < value <= 1:
        raise UsageError(f"--until {text!r} is no goal: write it like accuracy=0.95")
    return value


def _write_page(out: Path, result: TrainingResult) -> None:
    from bricks._version import __version__
    from bricks.report.training_page import training_page

    write_page(out, training_page(result, version=__version__, made=today()))


def _errors(result: TrainingResult) -> list[str]:
    from bricks.studies.training.result import TrainingFailure

    failed = [each.error for each in result.trainings if isinstance(each, TrainingFailure)]
    short = [
        f"{result.workload}, seed {run.seed}: its accuracy is {run.accuracy:.3f} after"
        f" {len(run.epochs)} epochs, and not {result.until:g}: raise --max-epochs"
        for run in result.runs
        if not run.reached
    ]
    if result.prediction.step is None:
        failed.append(f"{result.workload}: its step is not predicted: {result.prediction.reason}")
    return failed + short


def _facts(
    result: TrainingResult, validation: TrainingValidation | None, out: Path | None
) -> dict[str, Any]:
    prediction, spread = result.prediction, result.steps
    return {
        "workload": result.workload,
        "system": result.target.system.to_json(),
        "runtime": result.target.runtime.to_json(),
        "batch": result.batch,
        "until": {"accuracy": result.until},
        "max_epochs": result.max_epochs,
        "predicted": {
            "step": _time(prediction.step),
            "loading": _time(prediction.loading),
            "loading_begin": _time(prediction.begin),
            "loading_processes": prediction.loading_processes,
            "evaluation": _time(prediction.evaluation),
        },
        "seeds": [_seed(each, result) for each in result.trainings],
        "reached": len(result.reached),
        "median": _medians(result.reached),
        "steps": None if spread is None else dict(zip(("min", "median", "max"), spread,
                                                      strict=True)),
        "validation": None if validation is None else _validation(validation),
        "page": None if out is None else str(out),
    }  # fmt: skip


def _time(of: PredictedTime | None) -> dict[str, float] | None:
    return None if of is None else asdict(of)


def _seed(training: TrainingRun | TrainingFailure, result: TrainingResult) -> dict[str, Any]:
    from bricks.studies.training.result import TrainingFailure

    names = (
        "steps", "epochs", "new_epochs", "accuracy", "reached", "step_s", "loading_s",
        "evaluation_s", "epoch_s", "measured_s", "predicted_s", "low_s", "high_s",
        "predicted_epoch_s", "ratio", "losses",
    )  # fmt: skip
    nothing = {"seed": training.seed, **dict.fromkeys(names)}
    if isinstance(training, TrainingFailure):
        return {**nothing, "error": training.error}
    epochs, predicted = len(training.epochs), training.predicted
    found = {
        "steps": training.steps,
        "epochs": epochs,
        "new_epochs": training.new_epochs,
        "accuracy": training.accuracy,
        "reached": training.reached,
        "step_s": training.step_s,
        "loading_s": training.loading_s,
        "evaluation_s": training.evaluation_s,
        "epoch_s": training.measured_s / epochs,
        "measured_s": training.measured_s,
        "losses": list(training.losses),
    }
    if predicted is not None:
        found |= {
            "predicted_s": predicted.estimate_s,
            "low_s": predicted.low_s,
            "high_s": predicted.high_s,
            "predicted_epoch_s": predicted.estimate_s / epochs,
            "ratio": training.ratio,
        }
    return {**nothing, **found, "error": None}


def _medians(runs: Sequence[TrainingRun]) -> dict[str, float | None]:
    """Over the seeds that reached the accuracy; None where there is none."""
    from bricks.samples.statistics import median

    values: dict[str, list[float]] = {
        "steps": [run.steps for run in runs],
        "epochs": [len(run.epochs) for run in runs],
        "step_s": [run.step_s for run in runs],
        "loading_s": [run.loading_s for run in runs],
        "evaluation_s": [run.evaluation_s for run in runs],
        "measured_s": [run.measured_s for run in runs],
        "predicted_s": [run.predicted.estimate_s for run in runs if run.predicted is not None],
        "ratio": [run.ratio for run in runs if run.ratio is not None],
    }
    return {name: median(found) if found else None for name, found in values.items()}


def _validation(of: TrainingValidation) -> dict[str, Any]:
    return {**asdict(of), "verdict": of.verdict, "errors": list(of.errors)}
