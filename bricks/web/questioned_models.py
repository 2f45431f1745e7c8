"""Models that a server was asked about: those of the zoo, and uploads held in memory.

An answer is asked for again with another batch, and an upload with sizes of its open axes, without
sending the file again. Must not know HTTP.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bricks import sources
from bricks.reading.read import read_bytes
from bricks.zoo import entry

if TYPE_CHECKING:
    from bricks.errors import OpenDimensions
    from bricks.graph.model import Model


@dataclass(frozen=True, slots=True)
class OpenAxis:
    """An open dimension of an uploaded model: its ``key``, a name for people, a usual size."""

    key: str
    title: str
    example: int


# Dimensions of each input: a number, the symbol of an open dimension, or "" for one without.
OpenShapes = Mapping[str, Sequence[int | str]]


def open_axes(of: OpenDimensions) -> list[OpenAxis]:
    """The open dimensions that an error names, each once; none if an input has not even a rank."""
    axes: dict[str, OpenAxis] = {}
    for name, dims in of.dims.items():
        for number, dim in enumerate(dims):
            if isinstance(dim, str):
                key = _key(name, number, dim)
                # As in ``Batch (N)``, and in ``Axis 2 of x (height)``.
                title = "Batch" if number == 0 else f"Axis {number} of {name}"
                title = f"{title} ({dim})" if dim else title
                axes.setdefault(key, OpenAxis(key, title, of.examples[name][number]))
    return list(axes.values())


def _key(name: str, axis: int, symbol: str) -> str:
    return symbol or f"{name}[{axis}]"


@dataclass(frozen=True, slots=True)
class QuestionedModel:
    """The zoo model ``name``, or an upload of this name whose file without weights is ``content``.

    ``sizes`` are those of the open axes of ``shapes``, by key. None as ``batch``: the model's own.
    """

    name: str
    content: bytes | None = None
    batch: int | None = None
    shapes: OpenShapes = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    def read(self) -> Model:
        """Read the model; raises as :func:`bricks.reading.read.read_model`."""
        if self.content is not None:
            shapes = {
                name: [
                    self.sizes[_key(name, axis, dim)] if isinstance(dim, str) else dim
                    for axis, dim in enumerate(dims)
                ]
                for name, dims in self.shapes.items()
            }
            return read_bytes(self.content, self.name, batch=self.batch, shapes=shapes)
        known = entry(self.name)
        file = sources.OnnxFile(known.name, known.name, known.path)
        return sources.read(file, sources.ReadOptions(batch=self.batch))

    def sized(self, shapes: OpenShapes, sizes: Mapping[str, int]) -> QuestionedModel:
        """The same model with ``sizes`` of the open axes of ``shapes``."""
        is_open = {name: any(isinstance(dim, str) for dim in dims) for name, dims in shapes.items()}
        asked = {name: dims for name, dims in shapes.items() if is_open[name]}
        return replace(self, shapes=asked, sizes=sizes)

    def with_batch(self, batch: int) -> QuestionedModel:
        """The same model with another batch: the size of all first axes that were open."""
        first = {dims[0] for dims in self.shapes.values() if dims}
        sizes = {key: batch if key in first else size for key, size in self.sizes.items()}
        shapes = {
            name: [batch if isinstance(first, str) or first == self.batch else first, *rest]
            for name, (first, *rest) in self.shapes.items()
        }
        return replace(self, batch=batch, shapes=shapes, sizes=sizes)


class QuestionedModels:
    """QuestionedModels by the digest of a model or the id of a job; the oldest are dropped.

    At most ``entries`` are kept, with ``size_bytes`` of uploads in all.
    """

    def __init__(self, entries: int, size_bytes: int) -> None:
        self._entries, self._size_bytes = entries, size_bytes
        self._by_key: OrderedDict[str, QuestionedModel] = OrderedDict()
        self._digests: OrderedDict[tuple[object, ...], str] = OrderedDict()

    def hold(self, key: str, origin: QuestionedModel) -> None:
        """Hold ``origin`` under ``key``."""
        self._by_key[key] = origin
        self._by_key.move_to_end(key)
        while self._by_key and (len(self._by_key) > self._entries or self._held > self._size_bytes):
            self._by_key.popitem(last=False)

    def get(self, key: str) -> QuestionedModel | None:
        """The origin under ``key``; None if there is none any more."""
        return self._by_key.get(key)

    def answered(self, origin: QuestionedModel, digest: str) -> None:
        """Remember that reading ``origin`` gives the model with this digest."""
        self._digests[_identity(origin)] = digest
        while len(self._digests) > 4 * self._entries:
            self._digests.popitem(last=False)

    def digest_of(self, origin: QuestionedModel) -> str | None:
        """The digest of the model that reading ``origin`` gives; None if it was never read."""
        return self._digests.get(_identity(origin))

    @property
    def _held(self) -> int:
        """Bytes of uploads, those of one upload once."""
        contents = {id(of.content): of.content for of in self._by_key.values() if of.content}
        return sum(map(len, contents.values()))


def _identity(of: QuestionedModel) -> tuple[object, ...]:
    content = None if of.content is None else hash(of.content)
    return of.name, content, of.batch, tuple(sorted(of.sizes.items()))
