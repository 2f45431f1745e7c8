"""Options of settings of models: lists of runtimes, threads, batches and systems.

Must not know what a command does with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bricks.cli.options import MODELS, QUANTIZED, RUNNING
from bricks.errors import UsageError, suggestion
from bricks.graph.types import LARGEST_DIM
from bricks.session.defaults import MAX_THREADS, RUNTIME
from bricks.sources.source import UNQUANTIZED
from bricks.studies.options import option, systems_option

if TYPE_CHECKING:
    from bricks.cli.options import EstimateOptions
    from bricks.studies.inference.settings import Axes, MixedSize, Setting

T = TypeVar("T")

# The word for all known systems, and the one for this host.
ALL, HERE = "all", "here"

# A list of more values is a mistake: each may take minutes to measure.
_MOST = 64


def numbers_of(flag: str, text: str, *, most: int) -> tuple[int, ...]:
    """The whole numbers of a list such as ``1,2,4``, each once; :class:`UsageError` for others."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not (word.isascii() and word.isdecimal()):
            raise UsageError(f"{flag} {text}: {word!r} is no whole number")
        if len(word) > 18 or not 1 <= int(word) <= most:
            raise UsageError(f"{flag} {text}: {word} is not between 1 and {most}")
    return _few(flag, tuple(dict.fromkeys(map(int, words))))


def _few(flag: str, values: tuple[T, ...]) -> tuple[T, ...]:
    if len(values) > _MOST:
        raise UsageError(f"{flag} lists {len(values)} values: give {_MOST} or fewer")
    return values


def shapes_of_each(flag: str, texts: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The shapes of inputs in each setting, from texts such as ``x=1x3x32x32,1x3x64x64``.

    Lists of several inputs have as many entries, which belong together in order; an input with a
    single shape has it in every setting. Raises :class:`UsageError`.
    """
    from bricks.graph.types import parse_shape

    lists: dict[str, list[str]] = {}
    for text in texts:
        name, separator, shapes = text.rpartition("=")
        if name in lists:
            raise UsageError(f"{flag} gives input {name!r} twice: list its shapes in one {flag}")
        each = [f"{name}{separator}{shape.strip()}" for shape in shapes.split(",")]
        for shape in each:
            parse_shape(shape)
        lists[name] = list(dict.fromkeys(each)) if len(texts) == 1 else each
    lengths = {name: len(each) for name, each in lists.items() if len(each) > 1}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} {count}" for name, count in lengths.items())
        raise UsageError(
            f"{flag} lists shapes that belong together, but not as many of each input ({listed}):"
            " give as many"
        )
    count = max(lengths.values(), default=1)
    every = zip(*(each * count if len(each) == 1 else each for each in lists.values()), strict=True)
    return _few(flag, tuple(dict.fromkeys(every)))


def sizes_of(flag: str, text: str) -> Sequence[MixedSize]:
    """The sizes in the file ``text``; see :func:`~bricks.studies.inference.settings.read_sizes`."""
    from bricks.studies.inference.settings import read_sizes

    return read_sizes(Path(text))


def runtimes_of(flag: str, text: str) -> tuple[str, ...]:
    """The runtimes of a list such as ``onnxruntime,openvino``; :class:`UsageError` for others."""
    from bricks import backends

    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in backends.names():
            meant = suggestion(word, backends.names())
            raise UsageError(f"{flag} {text}: no runtime is called {word!r}: {meant}")
    return tuple(dict.fromkeys(words))


def precisions_of(flag: str, text: str) -> tuple[str | None, ...]:
    """The forms of numbers in a list such as ``int8``; None, a model's own, is compared always."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in QUANTIZED:
            meant = suggestion(word, QUANTIZED)
            raise UsageError(f"{flag} {text}: no model is quantised to {word!r}: {meant}")
    return tuple(dict.fromkeys((None, *(word for word in words if word != UNQUANTIZED))))


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """The settings of models, as lists; None: the default of each model and runtime."""

    systems: Sequence[str] | None = systems_option(
        "Known systems ('bricks systems') in place of this host.", "SYSTEM,…|all"
    )
    runtimes: Sequence[str] | None = option(
        "What runs the models: onnxruntime, openvino, mxnet, torch, fake, or one of yours; several"
        " are compared.",
        default=None, flag="--runtime", metavar="NAME,…", values="runtimes", group=RUNNING,
        shown=RUNTIME, read=runtimes_of,
    )  # fmt: skip
    threads: Sequence[int] | None = option(
        f"Threads of the runtime, 1 to {MAX_THREADS}; several numbers are compared.",
        default=None, metavar="N,…", group=RUNNING, shown="physical cores",
        read=partial(numbers_of, most=MAX_THREADS),
    )  # fmt: skip
    shapes: Sequence[tuple[str, ...]] | None = option(
        "Shapes of an input, ? for sizes that stay; several are compared. May be repeated: lists of"
        " several inputs belong together, in order.",
        default=None, flag="--shape", metavar="NAME=1x3x32x32,…", group=MODELS, shown=False,
        written=list[str], read=shapes_of_each,
    )  # fmt: skip
    batches: Sequence[int] | None = option(
        "Size of the first dimension of the models' inputs; several sizes are compared.",
        default=None, flag="--batch", metavar="N,…", group=MODELS, shown="the models' own, or 1",
        read=partial(numbers_of, most=LARGEST_DIM),
    )  # fmt: skip

    sizes: Sequence[Any] | None = option(
        "Sizes of a server's requests: a column for each input whose shape changes, and batch, and"
        " weight for how often. The answer is the mean and percentiles.",
        default=None, metavar="FILE.csv", group=MODELS, shown=False, read=sizes_of,
    )  # fmt: skip

    precisions: Sequence[str | None] | None = option(
        "Compare the models with what the tool of onnxruntime quantises them to.",
        default=None, flag="--quantize", metavar="|".join(QUANTIZED), values=QUANTIZED,
        group=MODELS, shown=UNQUANTIZED, read=precisions_of,
    )  # fmt: skip

    @property
    def elsewhere(self) -> bool:
        """Whether the settings are those of other systems only."""
        return self.systems is not None and HERE not in self.systems

    def axes(self, options: EstimateOptions, systems: Sequence[str | None] = (None,)) -> Axes:
        """The values of each dimension; ``systems`` are those that the options name."""
        from bricks.studies.inference.settings import Axes

        return Axes(
            systems=systems,
            runtimes=self.runtimes or (options.runtime.name,),
            threads=self.threads or (None,),
            shapes=self.shapes or ((),),
            batches=self.batches or (None,),
            sizes=self._mixed,
            quantizations=self.precisions or (None,),
        )

    def check_sizes(self) -> None:
        """Raise :class:`UsageError` for other sizes than those of a mix."""
        if not self.sizes:
            return
        for flag, values in (("--shape", self.shapes), ("--batch", self.batches)):
            if values and len(values) > 1:
                raise UsageError(f"--sizes and {flag} both list sizes: give one {flag[2:]}")
        if self.batches and self.sizes[0].batch is not None:
            raise UsageError("--batch is a column of --sizes too: leave one of them out")
        for shape in self.shapes[0] if self.shapes else ():
            name = shape.rpartition("=")[0]
            if any(of.rpartition("=")[0] == name for of in self.sizes[0].shapes):
                raise UsageError(f"--shape gives input {name!r}, a column of --sizes: leave it out")

    @property
    def _mixed(self) -> Sequence[tuple[tuple[str, ...], int | None]] | None:
        """The sizes of the mix, with the shape and the batch that all have; None: no mix."""
        if not self.sizes:
            return None
        shapes = self.shapes[0] if self.shapes else ()
        batch = self.batches[0] if self.batches else None
        return [((*of.shapes, *shapes), of.batch or batch) for of in self.sizes]

    def typed(self, options: EstimateOptions, setting: Setting) -> EstimateOptions:
        """``options`` in ``setting``, as a person types them: without values that nobody gave."""
        return in_setting(
            options,
            replace(
                setting,
                runtime=setting.runtime if self.runtimes else options.runtime.name,
                threads=setting.threads if self.threads else None,
                batch=setting.batch if self.batches or self.sizes else None,
            ),
        )


def in_setting(options: EstimateOptions, setting: Setting) -> EstimateOptions:
    """The options of a command about one ``setting``."""
    return replace(
        options,
        models=replace(
            options.models,
            batch=setting.batch,
            shape=list(setting.shapes) or None,
            quantize=setting.quantize or UNQUANTIZED,
        ),
        runtime=replace(options.runtime, name=setting.runtime, threads=setting.threads),
    )
