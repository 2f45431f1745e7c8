"""The parts of research/performance.md about costs, from the rows of cost.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.markdown import listing, table
from benchmarks.ratios import Ratios, quantile
from benchmarks.study import Results
from bricks.report.tables import number, percent
from bricks.samples.statistics import median

# At most this share of an estimate comes from another machine state than that of the run.
_OF_ONE = 0.1


@dataclass(frozen=True, slots=True)
class Case:
    """The whole zoo with a number of threads."""

    threads: int


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model's estimate at one effort and its measured latency, in seconds.

    ``other_state_share`` is the share of the estimate that is known in another state of the machine
    only, in earlier results.
    """

    model: str
    measured_s: float
    estimate_s: float
    low_s: float
    high_s: float
    predicted_share: float
    other_state_share: float | None = None

    @property
    def ratio(self) -> float:
        """Estimate over measured latency."""
        return self.estimate_s / self.measured_s

    @property
    def inside(self) -> bool:
        """Whether the measured latency is inside the estimate's interval."""
        return self.low_s <= self.measured_s <= self.high_s


@dataclass(frozen=True, slots=True)
class Effort:
    """The cost of measuring bricks at one effort, and the estimates from them.

    ``all_s`` includes reading and decomposing, ``speedup`` is over running all models.
    """

    name: str
    measuring_s: float
    all_s: float
    speedup: float
    bricks: int
    measured_bricks: int
    rounds: int
    models: tuple[ModelRow, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """The cost of running all models and of measuring bricks at each effort, in seconds.

    ``noise`` has |repeated / first - 1| of whole models; ``noise_in_state`` has the same after a
    correction to the conditions of the first run, and in earlier results of runs in one state of
    the machine. Running each model for the fewest rounds would take ``fewest_s``.
    """

    case: Case
    models: int
    reading_s: float
    decomposing_s: float
    models_s: float
    all_s: float
    rounds: int
    noise: tuple[float, ...]
    noise_in_state: tuple[float, ...]
    fewest_s: float
    efforts: tuple[Effort, ...]


def parts(results: Results[Row]) -> dict[str, str]:
    """The tables of a quiet host, and the figures of the text."""
    (row,) = results.rows
    fewest = [number(row.fewest_s / effort.all_s, 1) for effort in row.efforts]
    efforts = [
        f"{_s(effort.all_s)} with `--effort {effort.name}` ({_in_words(effort.models)})"
        for effort in row.efforts
    ]
    return {
        "date": results.about.date,
        "system": f"{results.about.system} with {results.about.runtime}",
        "threads": f"{row.case.threads} threads",
        "models": str(row.models),
        "running": _s(row.all_s),
        "measuring": f"{', '.join(efforts[:-1])} and {efforts[-1]}",
        "costs": _costs(row),
        "of_one_state": _note_on_states(row),
        "errors": _errors(row),
        "worst": _worst(row),
        "noise": _noise(row.noise),
        "noise_in_state": f"{percent(median(row.noise_in_state))} and"
        f" {percent(quantile(row.noise_in_state, 0.95))}",
        "fewest": _s(row.fewest_s),
        "fewest_times": f"{', '.join(fewest)} times",
    }


def summed_up(results: Results[Row]) -> dict[str, str]:
    """What each effort costs and how accurate it is, next to running the models."""
    (row,) = results.rows
    head = ["", "time", "times cheaper", "median error", "95th percentile",
            "inside the interval"]  # fmt: skip
    lines = [["run each model", _s(row.all_s), "1", "–", "–", "–"]]
    for effort in row.efforts:
        ratios = Ratios(tuple(model.ratio for model in effort.models))
        inside = sum(model.inside for model in effort.models) / len(effort.models)
        lines.append([
            f"`--effort {effort.name}`", _s(effort.all_s), number(effort.speedup, 1),
            percent(ratios.median_error), percent(ratios.p95_error), percent(inside, 0),
        ])  # fmt: skip
    return {"cost_models": str(row.models), "cost": table(head, lines)}


def noisy_parts(results: Results[Row]) -> dict[str, str]:
    """The tables of a noisy host, and the figures of the text."""
    (row,) = results.rows
    return {
        "noisy_host": f"{results.about.system}, {results.about.date}",
        "noisy_noise": _noise(row.noise),
        "noisy_costs": _costs(row),
        "noisy_of_one_state": _note_on_states(row),
        "noisy_errors": _errors(row),
    }


def listed(results: Results[Row]) -> str:
    """A row for each model at each effort."""
    return "\n\n".join(
        f"## {effort.name}\n\n{listing(effort.models)}"
        for row in results.rows
        for effort in row.efforts
    )


def _in_words(models: Iterable[ModelRow]) -> str:
    ratios = Ratios(tuple(model.ratio for model in models))
    return (
        f"median error {percent(ratios.median_error)}, geometric mean of ratios"
        f" {number(ratios.geomean, 3)}"
    )


def _noise(changes: Sequence[float]) -> str:
    return (
        f"{percent(median(changes))} in the median and {percent(quantile(changes, 0.95))} at the"
        " 95th percentile"
    )


def _note_on_states(row: Row) -> str:
    models = [model for effort in row.efforts for model in effort.models]
    if all(model.other_state_share is None for model in models):
        return ""
    if not _in_one_state(models):
        return (
            "; of each, nine tenths or more come from the [machine"
            " state](../docs/glossary.md#host-conditions) in which the model was run"
        )
    return (
        "; *of one state* are those models for which nine tenths of the estimate come from the"
        " [machine state](../docs/glossary.md#host-conditions) in which the model was run"
    )


def _in_one_state(models: Sequence[ModelRow]) -> list[ModelRow]:
    """The models whose estimates come from one state; none if that holds for all models."""
    some = [model for model in models if (model.other_state_share or 0.0) <= _OF_ONE]
    return some if len(some) < len(models) else []


def _costs(row: Row) -> str:
    head = ["", "reading", "decomposing", "measuring", "in all", "`speedup_wall`",
            "bricks measured", "rounds"]  # fmt: skip
    running = ["models", _s(row.reading_s), "", _s(row.models_s), _s(row.all_s), "1", "",
               str(row.rounds)]  # fmt: skip
    efforts = [
        [f"`--effort {effort.name}`", _s(row.reading_s), _s(row.decomposing_s),
         _s(effort.measuring_s), _s(effort.all_s), number(effort.speedup, 1),
         f"{effort.measured_bricks} of {effort.bricks}", str(effort.rounds)]
        for effort in row.efforts
    ]  # fmt: skip
    return table(head, [running, *efforts])


def _errors(row: Row) -> str:
    head = ["", "models", "median error", "95th percentile", "worst", "geometric mean of ratios",
            "inside the interval", "half the interval, median",
            "predicted share, median"]  # fmt: skip
    groups = [
        (title, models)
        for effort in row.efforts
        for title, models in (
            (f"`--effort {effort.name}`", effort.models),
            ("of one state", _in_one_state(effort.models)),
        )
        if models
    ]
    return table(head, ([title, *_figures(models)] for title, models in groups))


def _figures(models: Sequence[ModelRow]) -> list[str]:
    ratios = Ratios(tuple(model.ratio for model in models))
    half_widths = [(model.high_s - model.low_s) / 2 / model.estimate_s for model in models]
    return [
        str(len(models)), percent(ratios.median_error), percent(ratios.p95_error),
        percent(ratios.worst_error), number(ratios.geomean, 3),
        percent(sum(model.inside for model in models) / len(models), 0),
        percent(median(half_widths)),
        percent(median([model.predicted_share for model in models]), 0),
    ]  # fmt: skip


def _worst(row: Row) -> str:
    """The ten models with the largest errors at each effort."""
    columns = [
        sorted(effort.models, key=lambda model: -abs(model.ratio - 1))[:10]
        for effort in row.efforts
    ]
    lines = [
        [cell for model in models for cell in (model.model, number(model.ratio, 3))]
        for models in zip(*columns, strict=True)
    ]
    head = [cell for effort in row.efforts for cell in (f"`--effort {effort.name}`", "ratio")]
    return table(head, lines, "lr" * len(columns))


def _s(value_s: float) -> str:
    return f"{value_s:.1f} s"
