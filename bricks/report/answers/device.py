"""Answers about devices: which lane limits a step, and what its kernels alone take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.compose.estimate import Estimate
from bricks.report.answers.words import value_text
from bricks.report.tables import seconds

if TYPE_CHECKING:
    from bricks.compose.device.times import DeviceTimes
    from bricks.studies.inference.prediction import PredictedModel


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
