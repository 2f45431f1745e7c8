"""The options of a question about a model, as the query of an address.

Must not know how questions are answered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from urllib.parse import urlencode

from bricks.errors import UsageError
from bricks.graph.sizes import LARGEST_DIM

# Longer bounds are typing errors.
_MOST_MS = 1e9


@dataclass(frozen=True, slots=True)
class AnswerQuestion:
    """The batch, the number of threads and the bound (SLO, in milliseconds) that are asked for.

    None: the model's own batch, any number of threads, no bound.
    """

    batch: int | None = None
    threads: int | None = None
    slo_ms: float | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> AnswerQuestion:
        """The question in a query; :class:`UsageError` for a value that makes no sense."""
        return cls(
            checked_batch(query.get("batch", "")),
            checked_threads(query.get("threads", "")),
            _checked_bound(query.get("slo_ms", "")),
        )

    @property
    def slo_s(self) -> float | None:
        """The bound in seconds."""
        return None if self.slo_ms is None else self.slo_ms / 1e3

    @property
    def without_batch(self) -> AnswerQuestion:
        """The same question about a model whose batch is the one asked for."""
        return replace(self, batch=None)

    @property
    def query(self) -> str:
        """The query of an address, with its question mark; empty if nothing is asked for."""
        pairs = [(field.name, getattr(self, field.name)) for field in fields(self)]
        known = [
            (name, str(value) if isinstance(value, int) else f"{value:.6g}")
            for name, value in pairs
            if value is not None
        ]
        return f"?{urlencode(known)}" if known else ""


def checked_batch(text: str) -> int | None:
    """Parse a batch size; None for an empty ``text``, UsageError for a text that is no size."""
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:11]) <= LARGEST_DIM):
        raise UsageError(f"the batch {text[:20]!r} is no batch size: give a number such as 1 or 8")
    return int(text)


def checked_threads(text: str) -> int | None:
    """Parse a number of threads; None for an empty ``text``, UsageError for no such number."""
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 5):
        raise UsageError(f"{text[:20]!r} is no number of threads: give a number such as 2")
    return int(text)


def _checked_bound(text: str) -> float | None:
    """Parse a bound in milliseconds; None for an empty ``text``."""
    if not text:
        return None
    try:
        bound_ms = float(text[:20])
    except ValueError:
        bound_ms = math.nan
    if not 0 < bound_ms <= _MOST_MS:
        raise UsageError(f"the bound {text[:20]!r} is no latency: give milliseconds such as 20")
    return bound_ms
