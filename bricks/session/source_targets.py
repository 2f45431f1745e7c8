"""Other targets as training data for a target with few measurements of its own.

Must not know when these are asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.samples.call_overhead import ALL_PROBES, PROBES
from bricks.samples.measurement import Failure, Measurement
from bricks.session.latency_model import learned_before
from bricks.session.measured_target import MeasuredTarget

if TYPE_CHECKING:
    from bricks.predict.transfer import SourceTarget, ZeroShotTransfer

# The number of other targets to use (those with most measurements), and the number of bricks from
# which each learns its unmeasured ones. Keys are digests: the first keys are a random sample.
_MAX_OTHERS, _ENOUGH = 4, 800


def source_target(target: MeasuredTarget) -> SourceTarget | None:
    """The data of ``target`` as a source for other targets; None if there are too few."""
    from bricks.predict.predictor import learn
    from bricks.predict.transfer import SourceTarget

    kept = learned_before(target)
    if kept is not None:
        kernels = frozenset[str]().union(*(f.kernels for f in kept.predictor.fields.values()))
        known = kept.predictor, kernels, kept.slowness
        return SourceTarget(target.key, kept.latency_s, *known)
    latencies = target.latencies()
    latency_s = latencies.seconds
    features = target.features(sorted(latency_s)[:_ENOUGH])
    predictor = learn(features, latency_s, latencies.families)
    if predictor is None:
        return None
    kernels = frozenset(features.kernel for features in features.values())
    return SourceTarget(target.key, latency_s, predictor, kernels)


class SourceTargets:
    """The sources for one ``target``, learned when they are first asked for."""

    def __init__(self, target: MeasuredTarget) -> None:
        self._target = target
        self._sources: list[SourceTarget] | None = None

    @property
    def all(self) -> Sequence[SourceTarget]:
        """The source targets with most measurements."""
        if self._sources is None:
            sources = map(source_target, self._others())
            self._sources = [source for source in sources if source is not None]
        return self._sources

    def _others(self) -> list[MeasuredTarget]:
        own, source = self._target, self._target.source
        # Times on a host that launches kernels tell nothing about a processor that computes.
        processors = (t for t in source.systems.targets() if t.system.accelerator is None)
        # How copies slow each other down depends on their host.
        others = (t for t in processors if t.runtime.copies == 1)
        keys = [t.key for t in others if t.key != own.key]
        keys.sort(key=lambda key: (-len(source.measurements.costs(key)), key))
        return [
            MeasuredTarget(source, key, own.granularity, own.loaded) for key in keys[:_MAX_OTHERS]
        ]

    def borrowed(self) -> ZeroShotTransfer:
        """A predictor from other targets, preferably those with the same runtime."""
        from bricks.predict.transfer import ZeroShotTransfer

        runtimes = {t.key: t.runtime for t in self._target.source.systems.targets()}
        own_runtime = runtimes.get(self._target.key)
        same_runtime = [
            other for other in self.all if runtimes.get(other.target_key) == own_runtime
        ]
        return ZeroShotTransfer(same_runtime or self.all)

    def calls(self, borrowed: ZeroShotTransfer) -> dict[str, Measurement | Failure]:
        """The measured call overhead of one of the targets of ``borrowed``; empty without any."""
        for key in borrowed.target_keys:
            calls = self._target.source.measurements.results(key, ALL_PROBES)
            if all(isinstance(calls.get(probe), Measurement) for probe in PROBES.values()):
                return calls
        return {}
