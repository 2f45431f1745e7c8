"""The time that preparing walks takes: loading and binding.

It must not know which rounds are charged with it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bricks.measure.walk import Load


class PreparationTimes:
    """Seconds of preparing walks: ``walk_s`` by their names, ``load_s`` of loading by key."""

    def __init__(self, names: Iterable[str]) -> None:
        self.walk_s = dict.fromkeys(names, 0.0)
        self.load_s: dict[str, float] = {}
        self._loaded: set[str] = set()
        self._lap = 0.0

    @property
    def loaded(self) -> int:
        """The number of timed loads."""
        return len(self._loaded)

    def begin(self) -> None:
        """Begin a lap."""
        self._lap = time.perf_counter()

    def end_lap(self, name: str) -> None:
        """Charge a walk with the lap, and begin the next one."""
        now = time.perf_counter()
        self.walk_s[name] += now - self._lap
        self._lap = now

    def end_lap_of_loads(self, loads: Iterable[tuple[str, Load]], loads_s: Sequence[float]) -> None:
        """Charge walks, by name, with a lap in which ``loads`` ran in parallel."""
        now = time.perf_counter()
        factor = (now - self._lap) / max(sum(loads_s), 1e-9)
        self._lap = now
        for (name, load), seconds in zip(loads, loads_s, strict=True):
            self.walk_s[name] += factor * seconds
            self.note_load(load, factor * seconds)

    def by_key(self, keys: Mapping[str, Collection[str]]) -> dict[str, float]:
        """Seconds of preparing each of the ``keys``, which are those of each walk by its name.

        A key is charged with its own loading. Binding is divided equally among the keys of a walk.
        """
        seconds: dict[str, float] = {}
        for name, of_walk in keys.items():
            load_s = {key: self.load_s.get(key, 0.0) for key in of_walk}
            common_s = max(0.0, self.walk_s[name] - sum(load_s.values()))
            seconds |= {key: own_s + common_s / len(load_s) for key, own_s in load_s.items()}
        return seconds

    def note_load(self, load: Load, seconds: float) -> None:
        """Record the seconds of the first loading."""
        if load.name not in self._loaded:
            self._loaded.add(load.name)
            self.load_s[load.key] = self.load_s.get(load.key, 0.0) + seconds
