"""Finds the methods of the worker's classes that answer requests, by their annotations.

Must not know which requests exist.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from bricks.measure.protocol.request import Request

# A function of a request that returns the answer, by the type of the request.
Handlers = Mapping[type[Request[Any]], Callable[[Any], object]]

# Sends the parent the number of the step that is about to run, while a request is handled.
Announce = Callable[[int], None]


def handlers_of(subject: object) -> dict[type[Request[Any]], Callable[[Any], object]]:
    """The public methods of ``subject`` with a parameter ``request``, by the type of that."""
    handlers = {}
    for name, method in inspect.getmembers(type(subject), inspect.isfunction):
        if not name.startswith("_") and "request" in inspect.signature(method).parameters:
            handlers[get_type_hints(method)["request"]] = getattr(subject, name)
    return handlers
