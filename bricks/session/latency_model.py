"""The latency model of a target: a predictor learned from its measurements at one moment.

It never changes: after new measurements, :mod:`bricks.session.latencies` has another one. Other
targets are training data for a target with few measurements of its own. Learning imports libraries
that take a moment, so that they are imported where something is learned. Must not know when
anything is learned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from bricks.compose.basis import OTHER_HOST_SD
from bricks.predict.effort import MIN
from bricks.predict.features import BrickFeatures, extract_features, slowed
from bricks.samples.call_overhead import ALL_PROBES, LONG, PROBES
from bricks.samples.measurement import Failure, Measurement
from bricks.session.measured_target import KnownLatencies, MeasuredTarget
from bricks.system.host_conditions import CALLS, HostConditions, mean_conditions

if TYPE_CHECKING:
    from bricks.predict.learned_file import Learned
    from bricks.predict.predictor import Predictor
    from bricks.predict.transfer import SourceTarget, Transfer, ZeroShotTransfer

# The number of other targets to use (those with most measurements), and the number of bricks from
# which each learns its unmeasured ones. Keys are digests: the first keys are a random sample.
_MAX_OTHERS, _ENOUGH = 4, 800


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """A ``predictor`` of latencies, and the ``known`` latencies that it was learned from.

    ``predictor`` is None if there were too few latencies. ``slowness`` is that of its predictions,
    if a learned file distinguishes it. ``kept`` says whether it was read from such a file.
    """

    predictor: Predictor | Transfer | ZeroShotTransfer | None
    known: KnownLatencies
    slowness: float = 0.0
    kept: bool = False

    @classmethod
    def read(cls, target: MeasuredTarget) -> LatencyModel | None:
        """The model in the learned file of the target's measurements; None without such a file."""
        kept = learned_before(target)
        if kept is None:
            return None
        known = KnownLatencies(target, {}, {})
        return cls(kept.predictor, known, kept.slowness, kept=True)

    @classmethod
    def learn(
        cls,
        known: KnownLatencies,
        features: Mapping[str, BrickFeatures],
        others: Sequence[SourceTarget],
    ) -> LatencyModel:
        """A model of ``known`` latencies of bricks with these ``features``.

        Measurements of ``others``, further targets, inform the model of a target with few own ones.
        """
        from bricks.predict.predictor import learn

        if others:
            from bricks.predict.transfer import learn_transfer

            transfer = learn_transfer(features, known.seconds, known.families, others)
            if transfer is not None:
                return cls(transfer, known)
        latency_s = {key: known.mean_s(known.measured[key]) for key in features}
        return cls(learn(features, latency_s, known.families), known)

    @property
    def missing_count(self) -> int:
        """The number of further bricks to measure before any can be predicted."""
        return 0 if self.predictor else max(1, MIN - len(self.known.measured))

    @property
    def bias(self) -> float:
        """The relative standard deviation of the error that all predictions have in common."""
        if self.predictor is None:
            return 0.0
        bias, measured = self.predictor.bias, self.known.measured
        own = sum(not m.published for m in measured.values())
        # Mostly learned from another host of this kind, or not.
        other_host = self.kept or 2 * own < len(measured)
        return math.hypot(bias, OTHER_HOST_SD) if other_host else bias

    def slowed(self, features: Mapping[str, BrickFeatures]) -> dict[str, BrickFeatures]:
        """The features of bricks as the predictor expects them."""
        return slowed(features, self.slowness)


def learned_before(target: MeasuredTarget) -> Learned | None:
    """The learned file of ``target``, if there is one for its granularity."""
    content = target.source.measurements.learned(target.key)
    if content is None:
        return None
    from bricks.predict.learned_file import read

    learned = read(content, target.key, target.granularity)
    if learned is not None:
        new = target.source.plans.usage(target.key, target.granularity, unlearned=True)
        target.note_contexts([usage for _, usage in new])
    return learned


def source_target(target: MeasuredTarget) -> SourceTarget | None:
    """The data of ``target`` as a source for other targets; None if there are too few."""
    from bricks.predict.predictor import learn
    from bricks.predict.transfer import SourceTarget

    kept = learned_before(target)
    if kept is not None:
        kernels = frozenset[str]().union(*(f.kernels for f in kept.predictor.fields.values()))
        known = kept.predictor, kernels, kept.slowness
        return _with_host(SourceTarget(target.key, kept.latency_s, *known), target)
    latencies = target.latencies()
    latency_s = latencies.seconds
    features = target.features(sorted(latency_s)[:_ENOUGH])
    predictor = learn(features, latency_s, latencies.families)
    if predictor is None:
        return None
    kernels = frozenset(features.kernel for features in features.values())
    return _with_host(SourceTarget(target.key, latency_s, predictor, kernels), target)


def _with_host(source: SourceTarget, target: MeasuredTarget) -> SourceTarget:
    """``source`` with what reference kernels take on its host.

    Published files have only the kernel of exchange. The others are bricks whose latencies follow
    from its measurements, where such a kernel was measured at all.
    """
    features = kernel_features()
    known = {name: of for name, of in features.items() if of.kernel in source.kernels}
    latency_s = {
        name: p.latency_s
        for name, p in source.predictor.predict(slowed(known, source.slowness)).items()
    }
    probes = target.source.measurements.results(target.key, [PROBES[LONG]])
    if isinstance(chain := probes.get(PROBES[LONG]), Measurement):
        latency_s["calls"] = chain.latency_s * CALLS / LONG
    measured = mean_conditions(m.host for m in target.measured.values())
    watched = {} if measured is None else measured.by_kernel
    return replace(source, host=HostConditions.of(latency_s | watched))


@cache
def kernel_features() -> dict[str, BrickFeatures]:
    """The features of the reference kernels that are a single node, by name."""
    from bricks.backends.onnx_instruments import reference_kernels
    from bricks.decompose.identity import Cutter
    from bricks.graph.view import graph_of

    graphs = {name: graph_of(model) for name, model in reference_kernels().items()}
    return {
        name: extract_features(Cutter(graph).cut([0]).brick)
        for name, graph in graphs.items()
        if len(graph.nodes) == 1
    }


class SourceTargets:
    """The sources for one ``target``, learned when they are first asked for."""

    def __init__(self, target: MeasuredTarget) -> None:
        self._target = target
        self._sources: list[SourceTarget] | None = None

    @property
    def all(self) -> Sequence[SourceTarget]:
        """The source targets with most measurements."""
        if self._sources is None:
            own, source = self._target, self._target.source
            # Times on a host that launches kernels tell nothing about a processor that computes.
            processors = (t for t in source.systems.targets() if t.system.accelerator is None)
            # How copies slow each other down depends on their host. Where inputs repeat, processors
            # learn them.
            repeated = own.key in {
                t.key for t in source.systems.targets() if t.runtime.repeat_inputs
            }
            similar = (
                t
                for t in processors
                if t.runtime.copies == 1 and t.runtime.repeat_inputs == repeated
            )
            keys = [t.key for t in similar if t.key != own.key]
            same_runtime = set(self._same_runtime())
            keys.sort(
                key=lambda key: (key not in same_runtime, -len(source.measurements.costs(key)), key)
            )
            others = [
                MeasuredTarget(source, key, own.granularity, own.loaded)
                for key in keys[:_MAX_OTHERS]
            ]
            sources = map(source_target, others)
            self._sources = [source for source in sources if source is not None]
        return self._sources

    def _same_runtime(self) -> list[str]:
        """The keys of targets with the same runtime and number of threads."""
        runtimes = {t.key: t.runtime for t in self._target.source.systems.targets()}
        own = runtimes.get(self._target.key)
        return [key for key, runtime in runtimes.items() if runtime == own]

    def borrowed(self) -> ZeroShotTransfer:
        """A predictor from other targets, preferably those with the same runtime."""
        from bricks.predict.transfer import ZeroShotTransfer

        keys = self._same_runtime()
        same_runtime = [other for other in self.all if other.target_key in keys]
        watched = self._target.history.watched
        host = None if watched is None else watched.mean
        return ZeroShotTransfer(same_runtime or self.all, host, self._target.history.threads)

    def calls(self, borrowed: ZeroShotTransfer) -> dict[str, Measurement | Failure]:
        """The measured call overhead of one of the targets of ``borrowed``; empty without any."""
        for key in borrowed.target_keys:
            calls = self._target.source.measurements.results(key, ALL_PROBES)
            if all(isinstance(calls.get(probe), Measurement) for probe in PROBES.values()):
                return calls
        return {}
