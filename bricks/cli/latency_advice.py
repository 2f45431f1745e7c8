"""``bricks advise --slo``: the known targets that meet a latency bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bricks.cli.caches import refuse_missing_cache
from bricks.cli.options import SurveyOptions
from bricks.cli.output import finish, print_json, show
from bricks.cli.reading import decomposed, read_all
from bricks.cli.remedies import Remedies
from bricks.cli.systems import known_targets
from bricks.cli.workspaces import open_workspace
from bricks.errors import UsageError
from bricks.graph.sizes import LARGEST_DIM
from bricks.studies.options import option
from bricks.units.quantities import seconds_of, whole_numbers_of

if TYPE_CHECKING:
    from bricks.analysis.latency_advice import LatencyAdvice, NoLatencyAdvice
    from bricks.report.wide_intervals import ShownEstimate
    from bricks.session.workspace import Workspace

    Advised = tuple[LatencyAdvice | NoLatencyAdvice, ShownEstimate | None]


def _batch_sizes(flag: str, text: str) -> Sequence[int]:
    return whole_numbers_of(flag, text, LARGEST_DIM, "batch sizes")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyAdviceOptions:
    """The bound of the latency, and the batch sizes that are tried; None: the model's own."""

    slo_s: float | None = option(
        "The latency to keep: in us, ms or s.",
        default=None, flag="--slo", metavar="20ms", shown=False, read=seconds_of,
    )  # fmt: skip
    batches: Sequence[int] | None = option(
        "Batch sizes to look at, instead of the model's.",
        default=None, metavar="1,4,8", read=_batch_sizes,
    )  # fmt: skip


def advise_latencies(
    options: SurveyOptions, systems: Sequence[str], slo_s: float, batches: Sequence[int] | None
) -> None:
    """Print which known targets meet the latency bound with the models of ``options``."""
    from bricks.analysis.latency_advice import LatencyAnswer, best_first
    from bricks.units.facts import facts

    if batches is not None and options.models.batch is not None:
        raise UsageError("--batch and --batches are both given: leave one out")
    sizes = [options.models.batch] if batches is None else batches
    refuse_missing_cache(options.general.cache)
    with open_workspace(options) as workspace:
        advised = list(_advised(workspace, options, systems, slo_s, sizes))
    advised.sort(key=lambda pair: best_first(pair[0]))
    answer = LatencyAnswer(slo_s, tuple(advice for advice, _ in advised))
    if options.general.json:
        print_json(facts(answer))
    elif answer.advised:
        from bricks.report.latency_advice import advice_table
        from bricks.report.wide_intervals import wide_lines

        show(advice_table(answer.advised))
        show(*wide_lines([shown for _, shown in advised if shown is not None]))
    finish(answer.errors)


def _advised(
    workspace: Workspace,
    options: SurveyOptions,
    systems: Sequence[str],
    slo_s: float,
    sizes: Sequence[int | None],
) -> Iterator[Advised]:
    """The advice for each model, batch size and target, with its estimate if there is one."""
    from bricks.analysis.latency_advice import advise_latency

    targets = list(known_targets(workspace, systems))
    for size in sizes:
        sized = replace(options, models=replace(options.models, batch=size))
        read = read_all(sized)
        models = decomposed(workspace, read.models)
        remedies = [Remedies.on(t, workspace.target, "advise", sized) for t in targets]
        for model in models:
            for target, remedy in zip(targets, remedies, strict=True):
                yield _shown(
                    advise_latency(workspace, model, target, slo_s, size), remedy, read.word(model)
                )


def _shown(of: LatencyAdvice | NoLatencyAdvice, remedies: Remedies, word: str | None) -> Advised:
    """The advice with the command that would narrow its interval, and the estimate."""
    from bricks.analysis.latency_advice import NoLatencyAdvice
    from bricks.report.figures import count_text
    from bricks.report.wide_intervals import advice

    if isinstance(of, NoLatencyAdvice):
        return of, None
    sized = "" if of.batch is None else f", batch {of.batch}"
    threads = count_text(of.target.runtime.threads, "thread")
    title = f"{of.model} on {of.target.system.name} with {threads}{sized}"
    shown = remedies.shown(title, of.estimate, word)
    return replace(of, advice=advice(shown)), shown
