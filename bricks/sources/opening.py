"""Find the sources that a reference names, and read the models in them.

A reference is what a user names models with: an ONNX file, a folder, a name of the zoo, a suite, or
a function of a program. Must not know what is done with the models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from bricks.errors import BricksError, ModelError, UsageError
from bricks.sources.files import OnnxFile, SuiteFile, files, is_suite
from bricks.sources.programs import Function, RecordedProgram, recorded_program
from bricks.sources.source import INT8, PrivateBricks, ReadOptions, ReadResult, Source, Unread
from bricks.zoo import entry, is_entry

if TYPE_CHECKING:
    from bricks.graph.model import Model

_Found = TypeVar("_Found")


def find(reference: str) -> Sequence[Source]:
    """The sources that ``reference`` names: several for a folder, else one.

    Functions, recorded programs of the zoo and suites come first, then paths on disk, and then
    names of the zoo; the prefix that names a zoo model's origin may be omitted (``resnet50_v1`` is
    ``gluon_resnet50_v1``). Raises :class:`ModelError` if nothing matches, or several models of the
    zoo do.
    """
    if is_entry(reference):
        return (Function(reference),)
    recorded = recorded_program(reference)
    if recorded is not None:
        return (RecordedProgram(recorded),)
    if is_suite(reference):
        return (SuiteFile(reference),)
    return find_files(reference)


def is_found(reference: str) -> bool:
    """Whether ``reference`` names anything that :func:`find` finds."""
    with suppress(BricksError):
        return bool(find(reference))
    return False


def find_files(reference: str) -> Sequence[OnnxFile]:
    """The ONNX files that ``reference`` names, on disk or in the zoo; see :func:`find`."""
    on_disk = files(reference)
    if on_disk is not None:
        return on_disk
    known = entry(reference, "file, folder or zoo model")
    if not known.path.is_file():
        raise ModelError(
            f"the file of zoo model {known.name!r} is missing: {known.path}; rebuild the zoo"
        )
    return (OnnxFile(reference, known.name, known.path),)


def open(reference: str, options: ReadOptions) -> Iterator[ReadResult]:
    """Read the models that ``reference`` names; one that cannot be read doesn't stop the others.

    Raises :class:`UsageError` for options that the source does not support.
    """
    try:
        sources = find(reference)
    except BricksError as error:
        yield ReadResult(reference, Unread(reference, error))
        return
    for source in sources:
        yield from _opened(source, options)


def read(source: str | Source, options: ReadOptions) -> Model:
    """The only model of a source, or of the source that a reference names.

    Raises the error of a model that cannot be read, and :class:`UsageError` where there are
    several.
    """
    one = exactly_one(source, find(source)) if isinstance(source, str) else source
    model = exactly_one(one.word, list(_opened(one, options))).content
    if isinstance(model, Unread):
        raise model.cause
    if isinstance(model, PrivateBricks):
        raise private_suite_error(model)
    return model


def _opened(source: Source, options: ReadOptions) -> Iterator[ReadResult]:
    """The models of a source, quantised if ``options`` say so."""
    for result in source.open(options):
        quantise = options.quantize == INT8 and not isinstance(result.content, Unread)
        yield _quantised(result, options) if quantise else result


def _quantised(result: ReadResult, options: ReadOptions) -> ReadResult:
    from bricks.sources.quantised import Quantisation  # here: most models stay as they are

    model = result.content
    if isinstance(model, PrivateBricks):
        raise private_suite_error(model)
    assert not isinstance(model, Unread), "only models are quantised"
    try:
        quantisation = Quantisation.of(model, options.runtime)
        return replace(result, content=quantisation.quantised(), note=quantisation.note)
    except BricksError as error:
        return replace(result, content=Unread(f"{model.name} ({INT8})", error))


def exactly_one(reference: str, candidates: Sequence[_Found]) -> _Found:
    """The only candidate for ``reference``; :class:`UsageError` for any other number."""
    if len(candidates) != 1:
        raise UsageError(f"{reference} holds {len(candidates)} models: name one of them")
    return candidates[0]


def private_suite_error(private: PrivateBricks) -> UsageError:
    """The error of reading models from a private suite."""
    return UsageError(f"{private.file} is private, it holds no models: 'bricks measure' takes it")
