"""Commands that narrow wide intervals, made from the options of the command that shows them.

Each can be pasted whole: it has the models and every option that is not the default one.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from bricks.cli.command import parameters_of, typed_options
from bricks.cli.options import CommonOptions, EstimateOptions, MeasureOptions
from bricks.session.defaults import CACHE, EFFORT, PRECISION
from bricks.system.accelerator import CPU, CUDA
from bricks.units.facts import facts
from bricks.zoo import entries

if TYPE_CHECKING:
    from bricks.compose.estimate import Estimate
    from bricks.compose.interval_width import Remedy
    from bricks.decompose.plan import Plan
    from bricks.report.wide_intervals import ShownEstimate
    from bricks.system import Target


@dataclass(frozen=True, slots=True)
class Remedies:
    """The remedies for estimates that ``command`` made with ``options``.

    ``place`` names the host on which they have to be run, None for this one. Remedies for another
    host, or of a command without options for measuring, are 'bricks measure'. Estimates for
    ``now`` are not asked for again.
    """

    command: str
    options: CommonOptions
    place: str | None = None
    now: bool = False

    @classmethod
    def on(cls, target: Target, here: Target, command: str, options: CommonOptions) -> Remedies:
        """The remedies for estimates on ``target``; ``here`` is the target of the bench."""
        runtime, place = target.runtime, None
        device = CPU if target.system.accelerator is None else CUDA
        if target.key != here.key:
            options = replace(
                options,
                runtime=replace(
                    options.runtime,
                    name=runtime.backend,
                    threads=runtime.threads,
                    optimization=runtime.optimization,
                    device=device,
                ),
            )
        if target.system.key != here.system.key:
            place = target.system.name
        elif replace(runtime, threads=1) != replace(here.runtime, threads=1):
            place = f"{target.system.name} with {runtime.backend} {runtime.version}"
        return cls(command, options, place)

    def shown(self, title: str, estimate: Estimate, word: str | None) -> ShownEstimate:
        """The estimate with its remedies.

        ``word`` names the model on a command line; None if no word does.
        """
        from bricks.report.wide_intervals import ShownEstimate

        return ShownEstimate(title, estimate, word, self.line, self.place)

    def line(self, remedy: Remedy, words: Sequence[str]) -> str | None:
        """The command that remedies the intervals of the models called ``words``."""
        from bricks.compose.interval_width import Remedy

        options = self.options
        measuring, again = options.measuring, remedy is Remedy.MEASURE_AGAIN
        command = "measure" if self.place is not None or measuring is None else self.command
        if measuring is not None:
            measuring = replace(measuring, budget_s=None, effort=EFFORT, again=again)
            if again:  # samples may be few because a low precision was asked for
                measuring = replace(measuring, precision=min(measuring.precision, PRECISION))
            options = replace(options, measuring=measuring)
        if remedy in (Remedy.NOTHING, Remedy.NOW):
            if self.command == "compare":  # it has run the models
                return None
            if self.now and remedy is Remedy.NOW:
                return None
            command = "predict" if remedy is Remedy.NOW and self.place is None else "compare"
        if self.place is not None:
            options = replace(options, general=replace(options.general, cache=CACHE))
        typed = [*_typed(options, command)]
        if again and measuring is None:
            typed.append("--again")
        if remedy is Remedy.NOW and command == "predict":
            typed.append("--now")
        return shlex.join(["bricks", command, *words, *typed])


def width_of(shown: ShownEstimate | None) -> dict[str, Any]:
    """The JSON keys of an interval's width, and of the advice that narrows a wide one."""
    if shown is None:
        return {"uncertainty": None, "advice": None}
    from bricks.report.wide_intervals import advice

    return {"uncertainty": facts(shown.estimate.uncertainty), "advice": advice(shown)}


def zoo_name(plan: Plan) -> str | None:
    """The name of a planned model in the zoo, if its shapes are the same; else None."""
    planned = [getattr(plan.types[value], "shape", None) for value in plan.inputs]
    for entry in entries():
        if entry.name == plan.model and [shape for *_, shape in entry.inputs] == planned:
            return entry.name
    return None


def _typed(options: CommonOptions, command: str) -> Iterable[str]:
    """The options of ``command`` that differ from their defaults, as they are typed."""
    known = _names_of(MeasureOptions if command == "measure" else EstimateOptions)
    for option in typed_options(options):
        if option.name in known:
            yield from option.words


@cache
def _names_of(options: type) -> frozenset[str]:
    """The names of options that a command takes, without those of how it prints."""
    names = {parameter.name.replace("_", "-") for parameter in parameters_of(options)}
    return frozenset(names - {"json", "quiet", "verbose"})
