"""What a run has found, and whether the calls of programs add up to their real steps.

Must not know any runtime.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bricks.units.sample import Sample


@dataclass(slots=True)
class RunSummary:
    """Seconds of each brick and model by key: on the host, and of all kernels of a run."""

    host_s: dict[str, list[float]] = field(default_factory=dict)
    device_s: dict[str, list[float]] = field(default_factory=dict)

    def add(self, key: str, samples: Sequence[Any]) -> bool:
        """Add the JSON of samples; whether they are of a walk, and not of another state."""
        known = [Sample.from_json(sample) for sample in samples]
        if any(sample.displaced_bytes is not None for sample in known):
            return False
        self.host_s.setdefault(key, []).append(median(sample.host_s for sample in known))
        self.device_s.setdefault(key, []).append(median(sample.device_s for sample in known))
        return True

    def lines(self, programs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """A line for each program: its calls next to its real step, where that ran."""
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


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"
