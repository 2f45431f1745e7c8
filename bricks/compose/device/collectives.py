"""Collectives among the calls of a step whose cards divide a model.

No single card tells how long they take: a network does. Must not know which network it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from bricks.compose.basis import PredictedKernels
from bricks.graph.program import COLLECTIVES
from bricks.network.collective import ALL_GATHER, ALL_REDUCE, Collective, bytes_sent
from bricks.predict.kernels.call_tensors import tensor_call
from bricks.samples.measurement import Measurement, Round
from bricks.units.interval import Interval, common_sum
from bricks.units.sample import Kernel, Sample

if TYPE_CHECKING:
    from bricks.compose.basis import Basis
    from bricks.decompose.plan import Brick, Plan
    from bricks.network.times import Network

# Issuing a collective takes the host as long as so many other calls. Assumed: none was timed.
HOST_CALLS = 3

_OPERATIONS = {"all_reduce": ALL_REDUCE, "all_gather_into_tensor": ALL_GATHER}


@dataclass(frozen=True, slots=True)
class StepCollectives:
    """The collectives of a step: their number, the bytes that a card sends, and their seconds."""

    count: int
    sent_bytes: int
    seconds: Interval


def collective_facts(path: str) -> tuple[tuple[str, ...], ...]:
    """Entries of ``FACTS``: those of the :class:`StepCollectives` at ``path``."""
    seconds = ("collectives_s", "collectives_low_s", "collectives_high_s")
    return (
        (f"{path}.count", "collectives"),
        (f"{path}.seconds", *seconds),
        (f"{path}.sent_bytes", "collective_sent_bytes"),
    )


def collective_of(brick: Brick) -> Collective | None:
    """The collective that a brick is; None for other bricks.

    The last argument of its call is the number of cards.
    """
    call = tensor_call(brick)
    if call is None or call.call.namespace != COLLECTIVES:
        return None
    whole = call.outputs[0]
    num_bytes = round(whole.elements * whole.item_bytes)
    return Collective(_OPERATIONS[call.operator], num_bytes, call.positional[-1])


def step_collectives(plan: Plan, bricks: Mapping[str, Brick], network: Network) -> StepCollectives:
    """All collectives of a step of ``plan``; the errors of their times are common."""
    found = [(plan.counts[key], of) for key, of in _collectives(bricks).items()]
    sent = (n * bytes_sent(of.operation, of.num_bytes, of.ranks) for n, of in found)
    seconds = common_sum(_time_s(of, network).scaled(n) for n, of in found)
    return StepCollectives(sum(n for n, _ in found), round(sum(sent)), seconds)


def with_collectives(basis: Basis, network: Network) -> Basis:
    """``basis`` with the kernels of its collectives, as ``network`` has them."""
    device = basis.device
    assert device is not None
    called_s = [
        *(of.latency_s for of in basis.results.values() if isinstance(of, Measurement)),
        *(of.kernels.latency_s for of in device.predicted.values()),
    ]
    host_s = HOST_CALLS * median(called_s)
    kernels = {
        key: _kernels(key, of, _time_s(of, network), host_s)
        for key, of in _collectives(device.bricks).items()
    }
    return replace(basis, device=replace(device, predicted={**device.predicted, **kernels}))


def _collectives(bricks: Mapping[str, Brick]) -> dict[str, Collective]:
    known = ((key, collective_of(brick)) for key, brick in bricks.items())
    return {key: of for key, of in known if of is not None}


def _time_s(of: Collective, network: Network) -> Interval:
    return network.time(of.operation, of.num_bytes, of.ranks, computing=False).interval


def _kernels(key: str, of: Collective, seconds: Interval, host_s: float) -> PredictedKernels:
    """One kernel of ``seconds``, in the form of a measurement."""
    samples = [Sample(host_s, (Kernel(of.operation, seconds.value),), None)]
    measurement = Measurement(key, (Round.of(samples),), 0.0)
    # What the host takes is assumed: it may be anything up to twice that.
    issuing_s = Interval.around(host_s, host_s)
    return PredictedKernels(of.operation, measurement, seconds, issuing_s)
