"""Calls that were not measured on a host with an accelerator: predicted from those that were.

A predictor is learned from the measurements of one card, at first use, or read from a file of what
was learned from them. Must not know how kernels are added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from bricks.compose.basis import PredictedKernels, Results
from bricks.errors import UsageError
from bricks.graph.form import operator_title
from bricks.samples.measurement import Measurement, Round
from bricks.system.cards import Card, card_of, card_with_peaks
from bricks.units.interval import Interval
from bricks.units.sample import Sample

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.predict.kernels.kernel_predictor import KernelPrediction
    from bricks.predict.kernels.learned_kernels import LearnedKernels
    from bricks.store import Reading
    from bricks.system.accelerator import Accelerator
    from bricks.system.target import Target

# Half the width, relative to all kernels, of the error of another card. Of another architecture it
# is assumed: published throughputs lie within it, but are of one program (research/gpu.md).
_SAME_ARCHITECTURE, _OTHER_ARCHITECTURE = 0.1, 0.4

# The prefix of the keys of bricks; others are those of models and probes.
_BRICK = "b1-"


def device_latencies(source: Reading, target: Target) -> DeviceLatencies:
    """The kernels of calls on ``target``, which has an accelerator.

    Calls of a card that nobody measured are predicted from the card with most measurements. Raises
    :class:`UsageError` where no card was measured, or ``target`` is a card of unknown peaks.
    """
    cards = [of for of in source.systems.targets() if of.system.accelerator is not None]
    counts = {of.key: len(source.measurements.costs(of.key)) for of in cards}
    measured = [of for of in cards if counts[of.key]]
    own = [of for of in measured if of.key == target.key]
    if not measured:
        raise UsageError(
            f"{target.system.name}: no GPU was measured, so none can be predicted: measure the"
            " model with --device cuda"
        )
    of = max(own or measured, key=lambda of: counts[of.key])
    assert of.system.accelerator is not None and target.system.accelerator is not None
    card = None if own else card_with_peaks(target.system.accelerator)
    return DeviceLatencies(source, of.key, of.system.accelerator, card)


def transfer_error(here: Accelerator, there: Card) -> float:
    """Half the width of the error that predictions from ``here`` have in common ``there``.

    Relative to all kernels of a step.
    """
    same = there.accelerator.capability == here.capability
    return _SAME_ARCHITECTURE if same else _OTHER_ARCHITECTURE


class DeviceLatencies:
    """Predicted kernels on ``card``, from all measurements of a target with an ``accelerator``.

    ``card`` may be another one than the accelerator; None: the accelerator itself.
    """

    def __init__(
        self, source: Reading, target_key: str, accelerator: Accelerator, card: Card | None = None
    ) -> None:
        self._source, self._target_key = source, target_key
        self._accelerator, self._card = accelerator, card

    def predicted(self, bricks: Mapping[str, Brick]) -> dict[str, PredictedKernels]:
        """The kernels of ``bricks`` by key; on another card from measured ones, where there are.

        Calls unlike any that was measured have none.
        """
        known = {key: replace(of, carried=True) for key, of in self._carried(bricks).items()}
        others = {key: of for key, of in bricks.items() if key not in known and self._like(of)}
        if not others:
            return known
        learned = self._learned
        predictions = learned.predictor.predictions(others, self._card)
        return known | {
            key: _in_form(others[key], of, learned.host.of(others[key]))
            for key, of in predictions.items()
        }

    def _like(self, brick: Brick) -> bool:
        """Whether calls of the operator of ``brick`` were measured, or others of its kind."""
        from bricks.predict.kernels.features import has_known_work  # slow import

        operator = operator_title(brick.operators[0])
        return has_known_work(brick) or operator in self._learned.predictor.counts

    def _carried(self, bricks: Mapping[str, Brick]) -> dict[str, PredictedKernels]:
        """Bricks that another card has run: the measured one, or for itself others like it."""
        if self._card is not None:
            return self.on(self._card, bricks)
        own, found = card_of(self._accelerator), dict[str, PredictedKernels]()
        if own is None or not bricks:
            return found
        for target in self._source.systems.targets():
            of = target.system.accelerator
            if of is None or target.key == self._target_key:
                continue
            if of.capability == self._accelerator.capability:  # of one architecture
                found = DeviceLatencies(self._source, target.key, of).on(own, bricks) | found
        return found

    def on(self, card: Card, bricks: Mapping[str, Brick]) -> dict[str, PredictedKernels]:
        """The kernels on another ``card`` of those of ``bricks`` that were measured here."""
        from bricks.predict.kernels.kernel_predictor import transferred  # slow import

        here = card_with_peaks(self._accelerator)
        results = self._results([*bricks])
        carried = transferred(bricks, results, here, card) if results else {}
        return {
            key: _in_form(bricks[key], of, Interval.exact(results[key].latency_s))
            for key, of in carried.items()
        }

    def _results(self, keys: Sequence[str]) -> dict[str, Measurement]:
        results: Results = self._source.measurements.results(self._target_key, keys)
        return {key: of for key, of in results.items() if isinstance(of, Measurement)}

    @property
    def transfer_error(self) -> float:
        """See :class:`~bricks.compose.basis.DeviceBasis`."""
        return 0.0 if self._card is None else transfer_error(self._accelerator, self._card)

    @cached_property
    def _learned(self) -> LearnedKernels:
        """What a file keeps of all measurements; learned anew where there is none."""
        from bricks.predict.kernels.learned_kernels import read  # slow import

        content = self._source.measurements.learned(self._target_key)
        kept = None if content is None else read(content, self._target_key, self._accelerator)
        return kept or self.learned_anew()

    def learned_anew(self) -> LearnedKernels:
        """What all measurements tell; UsageError if the card's peaks are not known."""
        from bricks.predict.kernels.kernel_predictor import KernelPredictor
        from bricks.predict.kernels.learned_kernels import (
            HostTimes,  # slow import
            LearnedKernels,
        )

        costs = self._source.measurements.costs(self._target_key)
        measured = self._results([key for key in costs if key.startswith(_BRICK)])
        bricks = self._source.plans.load_bricks(list(measured))
        predictor = KernelPredictor.learn(bricks, measured, self._accelerator)
        return LearnedKernels(predictor, HostTimes.learn(bricks, measured))


def _in_form(brick: Brick, of: KernelPrediction, host_s: Interval) -> PredictedKernels:
    """A prediction in the form of a measurement, with the host's seconds for the call."""
    kernels = of.kernels_by_displaced or {None: ()}
    rounds = [Round.of([Sample(host_s.value, own, state)]) for state, own in kernels.items()]
    return PredictedKernels(
        of.operator or "+".join(brick.operators),
        Measurement(brick.key, tuple(rounds), 0.0),
        of.device_s.get(None, Interval.exact(0.0)),
        host_s,
    )
