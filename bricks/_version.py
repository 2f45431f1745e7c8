"""The version of the package, which the build reads here, and the names of the version before."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

__version__ = "0.1.0"

C = TypeVar("C", bound=type)


def warn_of_renaming(old: str, new: str) -> None:
    """Say, to whoever runs with warnings, that ``old`` goes by ``new``."""
    warnings.warn(f"{old} is now called {new}", DeprecationWarning, stacklevel=3)


def renamed_fields(**names: str) -> Callable[[C], C]:
    """A decorator of dataclasses whose fields are also read and given by old names, ``old=new``.

    Where both names are given, the old one counts: :func:`dataclasses.replace` gives every new name
    beside the changes.
    """

    def decorated(cls: C) -> C:
        made = cls.__init__  # type: ignore[misc]  # of this class, and no other

        @wraps(made)
        def __init__(self: Any, *values: Any, **fields: Any) -> None:
            for old in names.keys() & fields.keys():
                warn_of_renaming(f"{cls.__name__}.{old}", names[old])
                fields[names[old]] = fields.pop(old)
            made(self, *values, **fields)

        cls.__init__ = __init__  # type: ignore[misc]  # of this class, and no other
        for old, new in names.items():
            setattr(cls, old, _alias(cls.__name__, old, new))
        return cls

    return decorated


def _alias(owner: str, old: str, new: str) -> property:
    def read(self: Any) -> Any:
        warn_of_renaming(f"{owner}.{old}", new)
        return getattr(self, new)

    return property(read, doc=f"Now called ``{new}``.")
