"""Base class of objects that are closed after use: a context manager.

Here because every layer opens something. Must not know what is opened.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self, final


class Closing(ABC):
    """A context manager whose end, however it comes, is :meth:`close`."""

    @abstractmethod
    def close(self) -> None:
        """Release what was opened."""

    @final
    def __enter__(self) -> Self:
        """Return itself."""
        return self

    @final
    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()
