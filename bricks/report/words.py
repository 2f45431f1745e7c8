"""Words of answers: quantities with their uncertainty, targets, settings, and lists of names.

Quantities with their intervals are also rows of tables here. Must not compute results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.compose.estimate import Estimate
from bricks.errors import printable
from bricks.report.tables import Column, notable, number, seconds, share_text
from bricks.session.defaults import PROGRAMS_RUNTIME, RUNTIME
from bricks.studies.inference.settings import DIMENSIONS, Setting

if TYPE_CHECKING:
    from bricks.compose.estimate import DeviceTimes, Provenance
    from bricks.studies.inference.prediction import PredictedModel
    from bricks.system import Target
    from bricks.units.interval import Interval

# Sides of an interval that differ by no more than this share of the value are given as one.
_SAME_SHARE = 0.02

# Intervals beyond this factor are given by their ends: a percentage would say little.
_WIDE = 2.0


def value_text(of: Interval, unit: Callable[[float], str] = seconds) -> str:
    """A value with its uncertainty: ``38.2 ms (±4 %)``."""
    return f"{unit(of.value)} ({uncertainty_text(of, unit)})"


def slo_text(slo_s: float) -> str:
    """A bound of a latency as people type it: ``20 ms``, not ``20.0 ms``."""
    number, unit = seconds(slo_s).split()
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def uncertainty_text(of: Interval, unit: Callable[[float], str] = seconds) -> str:
    """The 95 % interval relative to its value: ``±4 %``, or ``-3 / +12 %`` where sides differ.

    An interval that reaches beyond twice the value, or below half of it, is given by its ends.
    """
    if of.value <= 0 or of.low < of.value / _WIDE or of.high > of.value * _WIDE:
        high = "no end" if math.isinf(of.high) else unit(of.high)
        return f"{unit(max(of.low, 0.0))} to {high}"
    below, above = 1 - of.low / of.value, of.high / of.value - 1
    if abs(above - below) <= _SAME_SHARE or max(below, above) <= 1.5 * min(below, above):
        return f"±{_percent(max(below, above))}"
    return f"-{_digits(below)} / +{_percent(above)}"


def _percent(share: float) -> str:
    return f"{_digits(share)} %"


def _digits(share: float) -> str:
    """A share in percent, with a digit after the point below one percent."""
    return f"{100 * share:.{1 if 0 < share < 0.00995 else 0}f}"


def sure_text(probability: float) -> str:
    """A probability in percent; never certain, since intervals resolve none beyond 99 %."""
    return share_text(min(probability, 0.999))


def source_text(of: Provenance) -> str:
    """Where an estimate comes from: ``62 % measured here, 30 % published, 8 % predicted``."""
    shares = {
        "measured": of.measured_share,
        "published": of.published_share,
        "predicted": of.predicted_share,
    }
    texts = [f"{share_text(share)} {how}" for how, share in notable(shares).items()]
    return ", ".join(texts) or "nothing measured"


def place_text(target: Target, here: Target) -> str:
    """Where a model runs: ``here with 2 threads``, or ``on amd-epyc-zen5-2c with 1 thread``."""
    where = "here" if target.system.key == here.system.key else f"on {target.system.name}"
    if target.system.accelerator is not None:
        return where
    runtime = target.runtime
    return f"{where} with {count_text(runtime.threads, 'thread')}{copies_text(runtime.copies)}"


def copies_text(copies: int) -> str:
    """The end of ``2 threads``: `` in each of 4 copies at once``; empty for one copy."""
    return f" in each of {copies} copies at once" if copies > 1 else ""


def listed(names: Sequence[str], conjunction: str = "and") -> str:
    """Names as a sentence has them: ``a``, ``a and b``, ``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def verb(count: int, singular: str, plural: str) -> str:
    """The form of a verb for ``count`` subjects."""
    return singular if count == 1 else plural


def links_text(name: str, one_way_bytes_per_s: float) -> str:
    """What is known of links between cards that their maker publishes."""
    return (
        f"{name}: {2 * one_way_bytes_per_s / 1e9:g} GB/s by its data sheet, latencies of NCCL's"
        " cost model, not checked here"
    )


# Writes a number with its unit; an optional one writes a dash for None.
Unit = Callable[[float], str]
OptionalUnit = Callable[[float | None], str]


def interval_text(of: Interval | None, unit: Unit = seconds) -> str | None:
    """Both ends: ``1.20 ms … 1.40 ms``; the upper one may be infinite. None without an interval."""
    if of is None:
        return None
    return f"{unit(of.low)} … {'no end' if math.isinf(of.high) else unit(of.high)}"


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A predicted quantity with its name for people, its ``unit``, and the ``observed`` value."""

    title: str
    predicted: Interval
    unit: OptionalUnit
    observed: float | None = None

    @property
    def ratio(self) -> str | None:
        """Predicted over observed; None without an observation."""
        return number(self.predicted.value / self.observed, 3) if self.observed else None


def figure_columns(title: str = "") -> list[Column[FigureRow]]:
    """Columns of predicted quantities with their intervals; ``title`` is that of their names."""
    return [
        Column(title, lambda row: row.title, left=True),
        Column("predicted", lambda row: row.unit(row.predicted.value)),
        Column("interval", lambda row: interval_text(row.predicted, row.unit)),
    ]


def target_text(target: Target) -> str:
    """A system with its runtime: ``c7i.large, onnxruntime 1.23.2, 2 threads``."""
    return printable(f"{target.system.name}, {runtime_text(target)}")


def runtime_text(target: Target) -> str:
    """The runtime, its version and its threads."""
    runtime = target.runtime
    copies = f", {runtime.copies} copies" if runtime.copies > 1 else ""
    inputs = ", inputs repeated" if runtime.repeat_inputs else ""
    threads = count_text(runtime.threads, "thread")
    return f"{runtime.backend} {runtime.version}, {threads}{copies}{inputs}"


def rate_text(value: float | None) -> str:
    """A rate per second: ``12.5/s``."""
    return "–" if value is None else f"{value:.4g}/s"


def count_text(count: int, noun: str) -> str:
    """``count`` with its ``noun`` in the singular or the plural: ``1 thread``, ``2 threads``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def names_text(names: Sequence[str], most: int) -> str:
    """The first ``most`` names, and the number of further ones: ``Conv, Relu and 3 more``."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


# Runtimes that are not named: those of models and of programs, unless another one is chosen.
_USUAL = frozenset((RUNTIME, PROGRAMS_RUNTIME))


def place_of(setting: Setting) -> str:
    """The place of one setting: ``here with 2 threads``."""
    return setting_text(setting, usual_dimensions(setting))


def usual_dimensions(setting: Setting) -> Sequence[str]:
    """The dimensions that an answer names, whatever varies; not a usual runtime, nor sizes."""
    unnamed = {"shapes", "batch"}
    if setting.runtime in _USUAL:
        unnamed.add("runtime")
    if setting.quantize is None:
        unnamed.add("quantize")
    if setting.target is not None and setting.target.system.accelerator is not None:
        unnamed.add("threads")
    return [name for name in DIMENSIONS if name not in unnamed]


def setting_text(setting: Setting, dimensions: Collection[str]) -> str:
    """These ``dimensions`` of a setting in words: ``on zen5 with openvino at batch 8``."""
    parts = [f"with {listed(means)}"] if (means := [*_means(setting, dimensions)]) else []
    if "system" in dimensions:
        parts.insert(0, "here" if setting.system is None else f"on {setting.system_name}")
    if "shapes" in dimensions and setting.shapes:
        parts.append(f"at {shapes_text(setting.shapes)}")
    if "batch" in dimensions and setting.batch is not None:
        parts.append(f"at batch {setting.batch}")
    return " ".join(parts)


def shapes_text(shapes: Sequence[str]) -> str:
    """Shapes of inputs in words; of a single input without its name."""
    return shapes[0].rpartition("=")[2] if len(shapes) == 1 else " ".join(shapes)


def _means(setting: Setting, dimensions: Collection[str]) -> Iterator[str]:
    if "runtime" in dimensions:
        yield setting.runtime
    if "quantize" in dimensions:
        yield setting.quantize or "its own precision"
    if "threads" in dimensions and setting.threads is not None:
        yield f"{count_text(setting.threads, 'thread')}{copies_text(setting.copies)}"


def device_of(of: PredictedModel) -> DeviceTimes | None:
    """The seconds on host and device; None for a model that runs on a processor."""
    return of.estimate.device if isinstance(of.estimate, Estimate) else None


def limits_text(of: DeviceTimes) -> str:
    """``limited by the host; its kernels take 3.1 ms (±6 %), as a CUDA graph 3.4 ms``."""
    kernels = f"its kernels take {value_text(of.device_s)}"
    if of.limited_by == "device":
        kernels = f"its host needs {seconds(of.host_s.value)}"
    graph = "" if of.graph_s is None else f", as a CUDA graph {seconds(of.graph_s.value)}"
    return f"limited by the {of.limited_by}; {kernels}{graph}"


def limited_up_to(cells: Sequence[PredictedModel]) -> str:
    """Up to which batch the host limits one model on one system; empty where that is not known.

    ``, limited by the host up to batch 16``, or the only lane that limits.
    """
    known = [(of.batch, device) for of in cells if (device := device_of(of)) is not None]
    if len(known) < len(cells) or len({of.setting.system_name for of in cells}) > 1:
        return ""
    lanes = [device.limited_by for _, device in sorted(known, key=lambda of: of[0])]
    if len(set(lanes)) == 1:
        return f", limited by the {lanes[0]}"
    if lanes != sorted(lanes, reverse=True):  # the host limits larger batches again
        return ""
    batches = [batch for batch, device in known if device.limited_by == "host"]
    return f", limited by the host up to batch {max(batches)}"
