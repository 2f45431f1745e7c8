"""What a run has found, and whether the calls of programs add up to their real steps.

Must not know any runtime.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bricks.system.accelerator_state import AcceleratorState, joined
from bricks.units.sample import Sample


@dataclass(slots=True)
class RunSummary:
    """Seconds of each brick and model by key: on the host, and of all kernels of a run.

    ``states`` are those of a GPU in each round, where it tells them.
    """

    host_s: dict[str, list[float]] = field(default_factory=dict)
    device_s: dict[str, list[float]] = field(default_factory=dict)
    states: list[AcceleratorState] = field(default_factory=list)

    def add(self, key: str, samples: Sequence[Any]) -> bool:
        """Add the JSON of samples; whether they are of a walk, and not of another state."""
        known = [Sample.from_json(sample) for sample in samples]
        if any(sample.displaced_bytes is not None for sample in known):
            return False
        self.host_s.setdefault(key, []).append(median(sample.host_s for sample in known))
        self.device_s.setdefault(key, []).append(median(sample.device_s for sample in known))
        return True

    def lines(self, programs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """A line for each program: its calls next to its real step, where that ran.

        The last line has the clocks of a GPU, and in how many rounds they were lowered.
        """
        for program in programs:
            counts = Counter(program["counts"])
            missing = sum(n for key, n in counts.items() if key not in self.host_s)
            known = f", {missing} calls are not measured" if missing else ""
            on_device = any(any(self.device_s.get(key, ())) for key in counts)
            what, of = ("kernels", self.device_s) if on_device else ("calls alone", self.host_s)
            total_s = sum(n * median(of[key]) for key, n in counts.items() if key in of)
            step = of.get(program["digest"])
            whole = f"; a real step takes {_ms(median(step))}" if step else ""
            yield f"{program['name']}: {what} take {_ms(total_s)}{known}{whole}"
        if self.states:
            yield self._clocks_line()

    def _clocks_line(self) -> str:
        clocks_hz = [state.clock_hz for state in self.states if state.clock_hz is not None]
        clocks = f"clock {_ghz(min(clocks_hz))} to {_ghz(max(clocks_hz))}, " if clocks_hz else ""
        lowered = joined(state for state in self.states if state.throttled_by)
        if lowered is None:
            return f"GPU: {clocks}never throttled"
        count = sum(bool(state.throttled_by) for state in self.states)
        reasons = " and ".join(lowered.throttled_by)
        return f"GPU: {clocks}throttled by {reasons} in {count} of {len(self.states)} rounds"


def _ghz(clock_hz: float) -> str:
    return f"{clock_hz / 1e9:.2f} GHz"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"
