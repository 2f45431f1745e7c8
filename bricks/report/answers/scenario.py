"""The first line about a served model: whether it keeps a rate, and how late its answers are."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from bricks.compose.slo import MeetsSlo
from bricks.errors import printable
from bricks.report.answers.words import slo_text, value_text
from bricks.report.figures import count_text
from bricks.report.tables import seconds
from bricks.studies.serving.scenario import ScenarioKind

if TYPE_CHECKING:
    from bricks.studies.serving.result import ScenarioResult


def rate_text(qps: float) -> str:
    """A rate of requests: ``6.69/s``."""
    return f"{float(f'{qps:.3g}'):,g}/s"


def scenario_text(result: ScenarioResult) -> str:
    """One sentence, such as ``resnet50 keeps 40/s under 100 ms at p99: 72.0 ms (±12 %) on …``."""
    match result.load.kind:
        case ScenarioKind.SERVER:
            return f"{_server(result)}."
        case ScenarioKind.OFFLINE:
            rate = value_text(result.throughput, rate_text)
            return f"{_name(result)} answers {rate} {_place(result)}, with all samples at once."
    samples = "one sample" if result.load.kind is ScenarioKind.SINGLE_STREAM else (
        f"{result.load.samples} samples"
    )  # fmt: skip
    return f"{_name(result)} takes {_latency(result)} at {_percentile(result)} for {samples} at a \
time {_place(result)}{_meets(result)}."


def _server(result: ScenarioResult) -> str:
    load, name, place = result.load, _name(result), _place(result)
    highest = result.max_qps
    if highest is not None and load.slo_s is not None and highest.value <= 0:
        return f"{name} keeps no rate under {_bound(result)} {place}"
    if highest is not None and load.slo_s is not None and load.qps == highest.value:
        rate = value_text(highest, rate_text)
        return f"{name} keeps up to {rate} under {_bound(result)} {place}"
    if result.saturated:
        rate = value_text(result.capacity_qps, rate_text)
        return f"{name} is saturated at {_rate(result)}: {place}, it serves {rate} at most"
    if load.slo_s is None:
        at_most = value_text(result.capacity_qps, rate_text)
        return (
            f"{name} at {_rate(result)} answers in {_latency(result)} at {_percentile(result)}"
            f" {place}; it saturates at {at_most}"
        )
    return f"{_kept(result)}: {_latency(result)} {place}{_highest(result)}"


def _kept(result: ScenarioResult) -> str:
    kept = f"{_rate(result)} under {_bound(result)}"
    match result.meets_slo:
        case MeetsSlo.YES:
            return f"{_name(result)} keeps {kept}"
        case MeetsSlo.UNCERTAIN:
            return f"It is uncertain whether {_name(result)} keeps {kept}"
    return f"{_name(result)} does not keep {kept}"


def _highest(result: ScenarioResult) -> str:
    """The rate that it keeps, where that is not the one that was asked about."""
    highest = result.max_qps
    if highest is None or result.meets_slo is MeetsSlo.YES:
        return ""
    return f"; it keeps up to {value_text(highest, rate_text)}"


def _meets(result: ScenarioResult) -> str:
    """Whether a stream meets its SLO; empty without one."""
    if result.load.slo_s is None:
        return ""
    bound = slo_text(result.load.slo_s)
    if result.meets_slo is MeetsSlo.UNCERTAIN:
        return f"; whether that meets {bound} is uncertain"
    return f", which {'meets' if result.meets_slo is MeetsSlo.YES else 'does not meet'} {bound}"


def _name(result: ScenarioResult) -> str:
    """The name of the model, without the folder and ending of its file."""
    return printable(PurePath(result.model).name.removesuffix(".onnx"))


def _place(result: ScenarioResult) -> str:
    threads = count_text(result.target.runtime.threads, "thread")
    instances = result.serving.instances
    several = "" if instances == 1 else f"{instances} instances of "
    return f"on {printable(result.target.system.name)} with {several}{threads}"


def _rate(result: ScenarioResult) -> str:
    rate_qps = result.load.rate_qps
    assert rate_qps is not None
    return f"{rate_qps:.4g}/s"


def _percentile(result: ScenarioResult) -> str:
    return f"p{result.load.counted_percentile:g}"


def _bound(result: ScenarioResult) -> str:
    assert result.load.slo_s is not None
    return f"{slo_text(result.load.slo_s)} at {_percentile(result)}"


def _latency(result: ScenarioResult) -> str:
    counted_s = result.latencies["counted_s"]
    return value_text(counted_s, seconds)
