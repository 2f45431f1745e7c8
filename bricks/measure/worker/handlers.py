"""How the worker's classes say which requests they handle.

Must not know which requests there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from bricks.measure.protocol.request import Request

# What handles the requests of a type: a function of the request, which returns the answer.
Handlers = Mapping[type[Request[Any]], Callable[[Any], object]]

# Tells the parent, while a request is being worked on, that a step of this number is about to run.
Announce = Callable[[int], None]


class RequestHandler(Protocol):
    """Handles the requests of one subject."""

    def handlers(self) -> Handlers:
        """The function that handles the requests of each type."""
        ...
