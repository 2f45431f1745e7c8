"""What a backend may be able to do besides what every backend does.

Each optional interface is a class that a backend inherits from, so that callers ask for it by type.
Must not know any of them.
"""

from __future__ import annotations

from abc import ABC
from typing import ClassVar, TypeVar

from bricks.errors import BackendError


class Capability(ABC):
    """An optional interface of a backend.

    ``lacking`` is the error of a runtime without it; ``{name}`` in it stands for the runtime.
    """

    lacking: ClassVar[str]


C = TypeVar("C", bound=Capability)


def capability(backend: object, kind: type[C], name: str) -> C:
    """The ``backend`` of the runtime called ``name``, as one that can do ``kind``.

    Raises :class:`BackendError` if it cannot.
    """
    if not isinstance(backend, kind):
        raise BackendError(kind.lacking.format(name=name))
    return backend
