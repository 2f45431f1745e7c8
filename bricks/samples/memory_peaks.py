"""Measured peaks of the memory of a process that loads and runs a model.

Plain data. Must not know how memory is measured.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryPeaks:
    """Peaks of a process's resident memory, in bytes above that before it loaded a model.

    ``loading_bytes`` until the model is loaded, ``running_bytes`` in the runs afterwards.
    """

    loading_bytes: int
    running_bytes: int

    @property
    def peak_bytes(self) -> int:
        """The higher of the two."""
        return max(self.loading_bytes, self.running_bytes)
