"""Compares two targets of a cache.

Here because it only gathers data from the cache: nothing is measured and no worker is started, so
the targets may be of other hosts. Must not know how differences are judged or shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from bricks.analysis.difference import Difference, IncomparableModel, difference
from bricks.analysis.target_data import TargetData
from bricks.decompose.granularity import EXECUTED, Granularity
from bricks.decompose.plan import titles
from bricks.errors import BricksError, StoreError, UsageError
from bricks.predict.prediction import BrickPredictions
from bricks.samples.call_overhead import ALL_PROBES
from bricks.samples.measurement import Measurement
from bricks.samples.usual_conditions import UsualConditions
from bricks.session.agreement import kept
from bricks.session.latencies import Latencies
from bricks.session.measured_target import HostHistory
from bricks.sources import find_files
from bricks.system.names import names_of, target_named

if TYPE_CHECKING:
    from bricks.decompose.plan import Plan
    from bricks.session.agreement import Agreement
    from bricks.store import Reading
    from bricks.system.target import Target


@dataclass(frozen=True, slots=True)
class TargetDiff:
    """The comparison of two targets of a cache.

    ``only_old`` and ``only_new`` are models of one target that the other lacks; empty if models
    were requested by name. ``fail_on`` is the share by which a model may be slower; None for any.
    ``agreements`` say whether the runtimes of both compute the same with the compared models.
    """

    FACTS: ClassVar = (
        *((f"difference.{name}", name) for name in ("old", "new")),
        "granularity",
        *((f"difference.{name}", name) for name in ("common", "models", "incomparable")),
        "only_old", "only_new", ("difference.bricks", "bricks"), "fail_on", "regressions",
        "agreements",
    )  # fmt: skip

    granularity: str
    difference: Difference
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]
    fail_on: float | None = None
    agreements: tuple[Agreement, ...] = ()

    @property
    def regressions(self) -> tuple[str, ...]:
        """The names of the models that are slower by more than ``fail_on``."""
        if self.fail_on is None:
            return ()
        return tuple(model.model for model in self.difference.regressions(self.fail_on))


def diff_targets(
    store: Reading,
    old: str,
    new: str,
    models: Sequence[str] = (),
    *,
    granularity: str = "executed",
    fail_on: float | None = None,
) -> TargetDiff:
    """The targets called ``old`` and ``new`` compared over ``models``, or all that both know.

    A model is named as in the cache, or as a file, a folder or a zoo model. ``fail_on`` is the
    share by which one may be slower, 0.03 for 3 %. Raises
    :class:`UsageError` for invalid targets, and :class:`StoreError` if there is nothing to compare,
    or the cache is damaged.
    """
    cut = str(Granularity.parse(granularity))
    store.refuse_damage()  # unreadable bricks would be reported as missing
    known = _TargetPlans.of(store, *_targets(store, old, new), cut)
    if models:
        digests, unknown = _meant(models, known.labels)
    else:
        digests, unknown = known.shared(), []
    compared = known.compared(store, digests)
    return TargetDiff(
        granularity=cut,
        difference=replace(compared, incomparable=(*unknown, *compared.incomparable)),
        only_old=() if models else _only(known.labels, *known.plans),
        only_new=() if models else _only(known.labels, *known.plans[::-1]),
        fail_on=fail_on,
        agreements=known.agreements(digests),
    )


def diff_models(
    store: Reading,
    both: tuple[Target, Target],
    digests: Sequence[str],
    *,
    granularity: str = "executed",
    fail_on: float | None = None,
) -> TargetDiff:
    """The targets ``both`` of a cache, old and new, compared over the models with ``digests``.

    See :func:`diff_targets`.
    """
    cut = str(Granularity.parse(granularity))
    every = names_of(store.systems.targets())
    known = _TargetPlans.of(store, both, [every[target.key] for target in both], cut)
    of = known.compared(store, digests)
    return TargetDiff(cut, of, (), (), fail_on, known.agreements(digests))


@dataclass(frozen=True, slots=True)
class _TargetPlans:
    """Two targets, their names, and the plans of each with the titles of all models, by digest."""

    both: tuple[Target, Target]
    names: Sequence[str]
    plans: Sequence[Mapping[str, Plan]]
    labels: Mapping[str, str]
    cut: str

    @classmethod
    def of(
        cls, store: Reading, both: tuple[Target, Target], names: Sequence[str], cut: str
    ) -> _TargetPlans:
        plans = _plans(store, both, cut)
        every = {**plans[0], **plans[1]}
        labels = dict(zip(every, titles([*every.values()]), strict=True))
        return cls(both, names, plans, labels, cut)

    def shared(self) -> list[str]:
        """The digests of the common models; :class:`StoreError` if there are none."""
        labels, plans = self.labels, self.plans
        digests = sorted(plans[0].keys() & plans[1].keys(), key=lambda d: (labels[d], d))
        if not digests:
            raise StoreError(
                f"{self.names[0]} and {self.names[1]} have no model in common at granularity"
                f" {self.cut}: measure the same ones on both"
            )
        return digests

    def agreements(self, digests: Sequence[str]) -> tuple[Agreement, ...]:
        """Kept verdicts on whether both targets compute the same."""
        known = [kept(self.labels[digest], digest, self.both) for digest in digests]
        return tuple(agreement for of in known for agreement in of)

    def compared(self, store: Reading, digests: Sequence[str]) -> Difference:
        labelled = [
            {d: replace(p, model=self.labels[d]) for d, p in known.items()} for known in self.plans
        ]
        old_data, new_data = (
            target_data(store, name, target, known, digests)
            for name, target, known in zip(self.names, self.both, labelled, strict=True)
        )
        of = difference(old_data, new_data, digests)
        bricks = store.plans.load_bricks(of.keys)
        return of.with_operators({key: brick.operators for key, brick in bricks.items()})


def _targets(store: Reading, old: str, new: str) -> tuple[tuple[Target, Target], list[str]]:
    """Two targets and their names in the cache; :class:`UsageError` for one target, or a GPU's."""
    targets = store.systems.targets()
    both = target_named(old, targets), target_named(new, targets)
    every = names_of(targets)
    names = [every[target.key] for target in both]
    if both[0].key == both[1].key:
        raise UsageError(
            f"{old!r} and {new!r} are one target, {names[0]}, and a cache measures a target once:"
            " give two"
        )
    if any(target.system.accelerator for target in both):
        systems = ",".join(dict.fromkeys(target.system.name for target in both))
        raise UsageError(
            "steps on a GPU cannot be compared brick by brick, since their kernels overlap with"
            f" the host's work: 'bricks predict MODEL --on {systems}' compares whole steps"
        )
    return both, names


def _plans(store: Reading, both: tuple[Target, Target], cut: str) -> list[dict[str, Plan]]:
    """The plans of each target, by the models' digests.

    A plan of one target is used for the other too, if that executes the same graph and has measured
    all of it: this is the case for a private suite, which contains no models.
    """
    own = [{plan.digest: plan for plan, _ in store.plans.all(target.key, cut)} for target in both]
    plans = [dict(known) for known in own]
    if cut == EXECUTED and not both[0].executes_like(both[1]):
        return plans
    for target, missing, other in zip(both, plans, own[::-1], strict=True):
        for digest, plan in other.items():
            if digest not in missing and set(
                store.measurements.results(target.key, plan.keys)
            ) == set(plan.keys):
                missing[digest] = plan
    return plans


def target_data(
    store: Reading, name: str, target: Target, plans: dict[str, Plan], digests: Sequence[str]
) -> TargetData:
    """The data of a target, with predictions for unmeasured bricks of the models ``digests``."""
    keys = list(dict.fromkeys(key for plan in plans.values() for key in plan.keys))
    results = store.measurements.results(target.key, [*keys, *ALL_PROBES])
    meant = [plans[digest] for digest in digests if digest in plans]
    missing = sorted({key for plan in meant for key in plan.keys} - results.keys())
    predictions, conditions = BrickPredictions(), None
    if missing:  # learning takes a while
        latencies = Latencies(store, target.key, meant[0].granularity)
        for plan in meant:
            latencies.add_plans([plan])
        predictions = latencies.predictions(missing)
    history = HostHistory(store, target.key, target.runtime.threads)
    measured = [result for result in results.values() if isinstance(result, Measurement)]
    if (usual := history.usual(measured)) is not None:
        conditions = UsualConditions.exactly(usual.mean)
    sensitivities = history.sensitivities(keys)
    return TargetData(name, target, plans, results, predictions, conditions, sensitivities)


def _meant(
    models: Sequence[str], labels: Mapping[str, str]
) -> tuple[list[str], list[IncomparableModel]]:
    """The digests of the requested models, and the reason for each model of neither target."""
    digests: list[str] = []
    unknown = []
    for name in models:
        try:
            titles = [name] if _called(name, labels) else [file.title for file in find_files(name)]
        except BricksError as error:
            unknown.append(IncomparableModel(name, f"{name} is no model that both know: {error}"))
            continue
        for title in titles:
            digests += (matching := _called(title, labels))
            if not matching:
                missing = f"{title}: neither of the two knows it: measure it on both first"
                unknown.append(IncomparableModel(title, missing))
    return list(dict.fromkeys(digests)), unknown


def _called(name: str, labels: Mapping[str, str]) -> list[str]:
    """The digests of models with this name, with or without the shapes of their inputs."""
    digests = [d for d in labels if name in (labels[d], labels[d].partition(" (")[0])]
    return sorted(digests, key=lambda d: (labels[d], d))


def _only(
    labels: Mapping[str, str], known: Mapping[str, Plan], other: Mapping[str, Plan]
) -> tuple[str, ...]:
    return tuple(sorted(labels[digest] for digest in known.keys() - other.keys()))
