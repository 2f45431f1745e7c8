"""``bricks advise``: which models meet an SLO, on which systems, and on how many hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bricks.cli.command import command
from bricks.cli.options import MODELS, RUNNING, DetailOptions, SurveyOptions
from bricks.cli.output import finish, print_json, show_answer
from bricks.cli.reading import decomposed, read_all
from bricks.cli.remedies import Remedies
from bricks.cli.systems import known_targets
from bricks.cli.workspaces import open_workspace
from bricks.errors import UsageError
from bricks.graph.types import LARGEST_DIM
from bricks.session.defaults import MAX_THREADS
from bricks.sources import Unread
from bricks.studies.options import option, systems_option
from bricks.units.quantities import seconds_of, whole_numbers_of

if TYPE_CHECKING:
    from bricks.analysis.advice import Candidate, Deciding
    from bricks.analysis.advising import CandidateModel, Question
    from bricks.compose.interval_width import Remedy
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.system import Target

_SERVING = "Serving"
_LARGEST_BATCH, _MOST_INSTANCES = 64, 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SloOptions:
    """The SLO, and the rate of a server."""

    slo_s: float | None = option(
        "The latency that is to be met: in us, ms or s.",
        default=None, flag="--slo", metavar="20ms", shown=False, read=seconds_of,
    )  # fmt: skip
    percentile: float | None = option(
        "The percentile of latencies that the SLO is for.",
        default=None, metavar="P", shown="99 with --qps, else the typical run",
    )  # fmt: skip
    qps: float | None = option(
        "Requests a second to a server, which arrive as a Poisson process; else single runs.",
        default=None, metavar="N", shown=False,
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Raise :class:`UsageError` for a rate or percentile that cannot be."""
        if self.qps is not None and not self.qps > 0:
            raise UsageError(f"--qps {self.qps:g} is no rate: give requests a second above 0")
        if self.percentile is not None and not 0 < self.percentile < 100:
            raise UsageError(f"--percentile {self.percentile:g} is none: give one such as 99")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingOptions:
    """The settings that are tried."""

    systems: Sequence[str] | None = systems_option("Only these systems.", "SYSTEM,…|all")
    threads: Sequence[int] | None = option(
        "Numbers of threads to try.",
        default=None, metavar="N,…", shown="all that are known", group=RUNNING,
        read=partial(whole_numbers_of, most=MAX_THREADS, what="numbers of threads"),
    )  # fmt: skip
    batches: Sequence[int] | None = option(
        "Batch sizes of single runs to try.",
        default=None, flag="--batch", formerly="--batches", metavar="N,…",
        shown="the model's own", group=MODELS,
        read=partial(whole_numbers_of, most=LARGEST_DIM, what="batch sizes"),
    )  # fmt: skip
    batching: Sequence[int] | None = option(
        "Largest batches of a server to try.",
        default=None, metavar="N,…", shown="1, and more up to 8 where they pay", group=_SERVING,
        read=partial(whole_numbers_of, most=_LARGEST_BATCH, what="batch sizes"),
    )  # fmt: skip
    instances: Sequence[int] | None = option(
        "Instances of a server to try, each with its threads.",
        default=None, metavar="N,…", shown="as many as there are cores for", group=_SERVING,
        read=partial(whole_numbers_of, most=_MOST_INSTANCES, what="numbers of instances"),
    )  # fmt: skip

    def refuse(self, slo: SloOptions) -> None:
        """Raise :class:`UsageError` for options that ``slo`` has no use for, or a missing SLO."""
        if slo.slo_s is None:
            raise UsageError("an SLO is missing, the latency to meet: add --slo 20ms")
        if slo.qps is not None and self.batches is not None:
            raise UsageError("a server makes batches itself: give --batching N in place of --batch")
        for flag, value in (("--batching", self.batching), ("--instances", self.instances)):
            if slo.qps is None and value is not None:
                raise UsageError(f"{flag} is for a server: add its rate, --qps N")


@command
def advise(
    options: SurveyOptions,
    slo: SloOptions,
    settings: SettingOptions,
    detail: DetailOptions,
) -> None:
    """Tell which models meet an SLO, on which known systems, with which threads and batches.

    With --qps, also with how many instances and hosts; never with more threads than cores. Nothing
    is timed: bricks that a system has not measured are predicted. Where an interval leaves the
    answer open, that is said, with the command that decides it. Without a model, of the whole zoo.
    Prices are those of 'bricks systems set'. Example: bricks advise resnet50 squeezenet --slo 20ms
    --percentile 99 --qps 50
    """
    from bricks.report.advice import advice_parts, advice_remarks, advice_text
    from bricks.units.facts import facts

    settings.refuse(slo)
    with open_workspace(options, elsewhere=bool(_names(settings))) as workspace:
        from bricks.analysis.advice import SloAdvice, best_first
        from bricks.analysis.advising import advise as advise_on
        from bricks.analysis.advising import agreements

        question = _question(slo, settings, [*known_targets(workspace, _names(settings))])
        models = _models(workspace, options, question)
        advised = []
        for number, model in enumerate(models):
            workspace.progress(f"advising on {model.name}", number / len(models))
            advised.append(advise_on(workspace, model, question))
        candidates = tuple(sorted(advised, key=best_first))
        deciding = tuple(_deciding(workspace, options, models, candidates))
        advice = SloAdvice(
            slo_s=question.slo_s,
            percentile=question.counted_percentile,
            qps=slo.qps,
            candidates=candidates,
            deciding=deciding,
            agreements=tuple(a for model in models for a in agreements(workspace, model, question)),
        )
    answer = advice_text(advice)
    if options.general.json:
        print_json({"answer": answer, **facts(advice)})
    elif len(advice.errors) < len(advice.candidates):
        parts, remarks = advice_parts(advice, every=detail.every), advice_remarks(advice)
        show_answer(answer, *parts, remarks=remarks, every=detail.every)
    finish(advice.errors)


def _names(settings: SettingOptions) -> Sequence[str]:
    return () if settings.systems in (None, ("all",)) else settings.systems or ()


def _question(slo: SloOptions, settings: SettingOptions, known: Sequence[Target]) -> Question:
    from bricks.analysis.advising import Question

    assert slo.slo_s is not None
    numbers = sorted({target.runtime.threads for target in known})
    tried = settings.threads or numbers
    targets = [target for target in known if target.runtime.threads in tried]
    if not targets:
        listed = ",".join(map(str, numbers))
        raise UsageError(f"nothing is measured with so many threads: give --threads {listed}")
    if settings.instances is not None:
        instances = min(settings.instances)
        from bricks.studies.serving.service import most_instances

        most = max(map(most_instances, targets))
        if instances > most:
            raise UsageError(
                f"no known system has cores for {instances} instances: give --instances"
                f" {most} or less"
            )
    return Question(
        targets=targets,
        slo_s=slo.slo_s,
        percentile=slo.percentile,
        qps=slo.qps,
        batches=settings.batches if slo.qps is None else settings.batching,
        instances=settings.instances,
    )


def _models(
    workspace: Workspace, options: SurveyOptions, question: Question
) -> Sequence[CandidateModel]:
    from bricks.analysis.advising import CandidateModel

    first: int | None = 1
    if question.qps is None:
        first = None if question.batches is None else question.batches[0]
    read = read_all(_sized(options, first))
    return [
        CandidateModel(model.name, partial(_read, options, model, first, word), word)
        for model in decomposed(workspace, read.models)
        for word in (read.word(model),)
    ]


def _sized(options: SurveyOptions, batch: int | None, **models: Any) -> SurveyOptions:
    return replace(options, models=replace(options.models, batch=batch, **models))


def _read(
    options: SurveyOptions,
    model: Model | Unread,
    first: int | None,
    word: str | None,
    batch: int | None,
) -> Model | Unread:
    if batch == first or word is None:
        return model
    again = read_all(_sized(options, batch, words=[word])).models
    return next(other for other in again if other.name == model.name)


def _deciding(
    workspace: Workspace,
    options: SurveyOptions,
    models: Sequence[CandidateModel],
    candidates: Sequence[Candidate],
) -> Iterator[Deciding]:
    from bricks.analysis.advice import Deciding

    by_name = {model.name: model for model in models}
    groups: dict[tuple[str | None, str | None], list[_DecidingModel]] = {}
    for candidate in candidates:
        one = _deciding_model(workspace, options, by_name[candidate.model], candidate)
        if one is not None:
            groups.setdefault((one.remedies.place, one.line([])), []).append(one)
    for group in groups.values():
        seconds = [one.wall_s for one in group if one.wall_s is not None]
        yield Deciding(
            models=tuple(one.name for one in group),
            command=group[0].line([one.word for one in group]),
            system=group[0].remedies.place,
            wall_s=sum(seconds) if len(seconds) == len(group) else None,
        )


@dataclass(frozen=True, slots=True)
class _DecidingModel:
    """A model that is undecided, and the measurement that decides it in about ``wall_s``."""

    name: str
    word: str
    remedies: Remedies
    remedy: Remedy
    wall_s: float | None

    def line(self, words: Sequence[str]) -> str:
        return self.remedies.line(self.remedy, words) or ""


def _deciding_model(
    workspace: Workspace, options: SurveyOptions, model: CandidateModel, candidate: Candidate
) -> _DecidingModel | None:
    """How to decide a candidate; None if it is decided, or no word of a command names it."""
    from bricks.analysis.advising import deciding_setting, measured_again, measuring_s
    from bricks.compose.interval_width import Remedy

    setting = deciding_setting(candidate, workspace.target)
    if setting is None or model.word is None:
        return None
    sized = model.read(setting.batch)
    assert not isinstance(sized, Unread)  # it has an estimate
    typed = _sized(options, None if setting.batch == 1 else setting.batch)
    target = setting.target
    return _DecidingModel(
        name=model.name,
        word=model.word,
        remedies=Remedies.on(target, workspace.target, "advise", typed),
        remedy=Remedy.MEASURE_AGAIN if measured_again(setting) else Remedy.MEASURE,
        wall_s=measuring_s(workspace, workspace.plans.plan(sized, target=target), target),
    )
