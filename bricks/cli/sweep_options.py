"""Options of settings of models: lists of runtimes, threads, batches and systems.

Must not know what a command does with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from bricks.cli.choices import QUANTIZED
from bricks.cli.options import MODELS, RUNNING
from bricks.errors import UsageError, suggestion
from bricks.graph.sizes import LARGEST_DIM
from bricks.session.defaults import MAX_THREADS, RUNTIME
from bricks.sources.defaults import UNQUANTIZED
from bricks.studies.options import option, systems_option

if TYPE_CHECKING:
    from bricks.cli.options import EstimateOptions
    from bricks.studies.inference.settings import Axes, Setting

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


def _few(flag: str, values: tuple[int, ...]) -> tuple[int, ...]:
    if len(values) > _MOST:
        raise UsageError(f"{flag} lists {len(values)} values: give {_MOST} or fewer")
    return values


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
    batches: Sequence[int] | None = option(
        "Size of the first dimension of the models' inputs; several sizes are compared.",
        default=None, flag="--batch", metavar="N,…", group=MODELS, shown="the models' own, or 1",
        read=partial(numbers_of, most=LARGEST_DIM),
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
            batches=self.batches or (None,),
            quantizations=self.precisions or (None,),
        )

    def typed(self, options: EstimateOptions, setting: Setting) -> EstimateOptions:
        """``options`` in ``setting``, as a person types them: without values that nobody gave."""
        return in_setting(
            options,
            replace(
                setting,
                runtime=setting.runtime if self.runtimes else options.runtime.name,
                threads=setting.threads if self.threads else None,
                batch=setting.batch if self.batches else None,
            ),
        )


def in_setting(options: EstimateOptions, setting: Setting) -> EstimateOptions:
    """The options of a command about one ``setting``."""
    return replace(
        options,
        models=replace(
            options.models, batch=setting.batch, quantize=setting.quantize or UNQUANTIZED
        ),
        runtime=replace(options.runtime, name=setting.runtime, threads=setting.threads),
    )
