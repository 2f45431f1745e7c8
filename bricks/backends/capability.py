"""Optional interfaces of backends, which are classes that callers ask for by type.

Must not know any of them.
"""

from __future__ import annotations

from abc import ABC
from typing import ClassVar, TypeVar

from bricks.errors import BackendError


class Capability(ABC):
    """An optional interface of a backend.

    ``lacking`` is the error text of a runtime without it; ``{name}`` stands for the runtime.
    """

    lacking: ClassVar[str]


C = TypeVar("C", bound=Capability)


def capability(backend: object, kind: type[C], name: str) -> C:
    """Return the ``backend`` of the runtime ``name`` as a ``kind``.

    Raises :class:`BackendError` if it lacks the capability.
    """
    if not isinstance(backend, kind):
        raise BackendError(kind.lacking.format(name=name))
    return backend
