"""How long a training takes on one rank and on several, in one or two sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bricks.errors import printable
from bricks.report.answers.words import links_text, value_text
from bricks.report.figures import count_text
from bricks.report.tables import duration, number, seconds
from bricks.studies.scaling.result import (
    ASSUMED,
    LOOPBACK,
    PUBLISHED,
    RankNetwork,
    ScalePoint,
    ScalingResult,
)

if TYPE_CHECKING:
    from bricks.units.interval import Interval


def scaling_answer(result: ScalingResult) -> str:
    """Sentences such as ``A training epoch of 50,000 samples takes 5.1 min (±4 %) here, …``."""
    points = _named(result.predicted)
    if not points:
        return printable(f"No step of {result.workload} can be predicted.")
    sentences = [_first(result, points), *_run(result, points), *_real(result.predicted)]
    return printable(" ".join(sentences))


def _named(points: Sequence[ScalePoint]) -> list[ScalePoint]:
    """One rank, and the most: with the fastest strategy where there are several."""
    ranks = sorted({point.ranks for point in points})
    ends = dict.fromkeys((*ranks[:1], *ranks[-1:]))
    return [min((p for p in points if p.ranks == n), key=lambda p: p.step_s.value) for n in ends]


def _first(result: ScalingResult, points: Sequence[ScalePoint]) -> str:
    samples = result.step.samples_per_epoch
    if samples is None:
        subject = f"A training step of {result.workload}"
        return f"{subject} takes {_times(result, points, lambda p: p.step_s)}{_efficiency(points)}."
    times = _times(result, points, lambda p: p.epoch_s)
    return f"A training epoch of {samples:,} samples takes {times}{_efficiency(points)}."


def _times(
    result: ScalingResult,
    points: Sequence[ScalePoint],
    time_s: Callable[[ScalePoint], Interval | None],
) -> str:
    texts = [
        f"{value_text(known, duration)} {_where(result, point)}"
        for point in points
        if (known := time_s(point)) is not None
    ]
    return ", ".join(texts)


def _where(result: ScalingResult, point: ScalePoint) -> str:
    name = result.target.system.name
    if point.ranks == 1:
        return "here" if result.here else f"on one {name}"
    return f"on {point.ranks} ranks"


def _efficiency(points: Sequence[ScalePoint]) -> str:
    most = points[-1]
    return "" if most.ranks == 1 else f" (efficiency {number(most.efficiency.value)})"


def _run(result: ScalingResult, points: Sequence[ScalePoint]) -> list[str]:
    epochs = result.step.epochs
    if epochs is None or points[0].run_s is None:
        return []
    times = [
        f"{duration(point.run_s.value)} {_where(result, point)}"
        for point in points
        if point.run_s is not None
    ]
    return [f"{count_text(epochs, 'epoch')}: {', '.join(times)}."]


def _real(points: Sequence[ScalePoint]) -> list[str]:
    """The real step, if one was run."""
    return [
        f"A real step on {point.ranks} ranks took {seconds(point.checked.step_s)}, predicted"
        f" {value_text(point.step_s)}."
        for point in points
        if point.checked is not None
    ]


def scaling_remarks(result: ScalingResult) -> list[str]:
    """What is assumed of ranks and network, and what the times lack."""
    network = result.network
    linked = network.origin == PUBLISHED
    return [_linked(network) if linked else _ranks_and_network(result), _missing(result)]


def _linked(network: RankNetwork) -> str:
    """GPUs joined by their maker's links, and the network between more of them, if any."""
    links = links_text(network.name, network.bandwidth or 0.0)
    if network.beyond is None:
        return f"Ranks are GPUs joined by {links}; yours: --bandwidth, --latency."
    return (
        f"Up to {network.most_ranks} ranks are GPUs joined by {links}; more are GPUs on hosts of"
        f" their own, {_network(network.beyond)}"
    )


def _ranks_and_network(result: ScalingResult) -> str:
    return f"{_ranks(result)}; {_network(result.network)}"


def _ranks(result: ScalingResult) -> str:
    threads = count_text(result.target.runtime.threads, "thread")
    if result.network.one_host or result.network.origin == LOOPBACK:
        where = "this host" if result.here else result.target.system.name
        return f"All ranks run on {where} at once, {threads} each"
    if result.target.system.accelerator is None:
        return f"Each rank is a host of its own with {threads}"
    apart = " on a host of its own" if result.network.origin == ASSUMED else ""
    return f"Each rank is a GPU{apart}"


def _network(network: RankNetwork) -> str:
    if network.bandwidth is None or network.latency_s is None:
        kind = "loopback of this host" if network.origin == LOOPBACK else "as measured"
        return f"network: {printable(network.name)}, {kind}."
    facts = f"{network.bandwidth * 8 / 1e9:g} Gbit/s, {seconds(network.latency_s)} a message"
    if network.origin == ASSUMED:
        return f"network assumed: {facts}; yours: --bandwidth, --latency."
    return f"network stated: {facts}."


def _missing(result: ScalingResult) -> str:
    if result.step.samples_per_epoch is None:
        return "Add --samples-per-epoch N and --epochs N for the time of an epoch and a run."
    more = "" if result.step.epochs is not None else " Add --epochs N for the time of a run."
    return f"Loading data and evaluating are not counted.{more}"
