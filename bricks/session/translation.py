"""Recorded programs on an accelerator: the calls that they make there, cut into bricks.

A program that was recorded on a processor is translated by its runtime's offer. Nothing is run.
Must not know any runtime.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bricks import backends
from bricks.backends.base import capability
from bricks.backends.programs import ProgramTranslator, TranslatedProgram
from bricks.decompose.build import build
from bricks.errors import ModelError, UsageError
from bricks.graph.form import ModelForm, form_of
from bricks.graph.view import graph_of, parse_model
from bricks.reading.digest import digest

if TYPE_CHECKING:
    from bricks.decompose.granularity import Granularity
    from bricks.decompose.plan import Decomposition
    from bricks.graph.model import Model
    from bricks.system.target import Target


def translated(model: Model, target: Target) -> tuple[Model, tuple[str, ...]]:
    """``model`` with the calls that it makes on ``target``, and notes on what was assumed.

    Raises :class:`UsageError` for a model that is no recorded program, and :class:`ModelError` for
    calls that no rule translates.
    """
    runtime, proto = target.runtime, parse_model(model.skeleton)
    if form_of(proto) is not ModelForm.PROGRAMS:
        raise UsageError(
            f"{model.name} is an ONNX model, and {target.system.name} was measured with programs of"
            f" {runtime.backend}: give FILE.py:FUNCTION, or a recorded program such as torch_bert"
        )
    return calls_on(runtime.provider, runtime.backend, model)


def calls_on(provider: str, runtime: str, model: Model) -> tuple[Model, tuple[str, ...]]:
    """``model`` with the calls that ``runtime`` makes on ``provider``, and what was assumed.

    Raises :class:`ModelError` for calls that no rule translates.
    """
    translator = capability(backends.offer(runtime), ProgramTranslator, runtime)
    there = translator.calls_on(provider, parse_model(model.skeleton))
    if there.untranslated:
        raise ModelError(
            f"{model.name}: it is not known how {provider} runs {', '.join(there.untranslated)}:"
            " record it on a GPU (--device cuda)"
        )
    return _model_of(model, there), there.notes


def _model_of(model: Model, there: TranslatedProgram) -> Model:
    skeleton = there.proto.SerializeToString(deterministic=True)
    return replace(model, skeleton=skeleton, digest=digest(there.proto))


def decomposed(model: Model, notes: tuple[str, ...], granularity: Granularity) -> Decomposition:
    """A translated ``model`` cut into its calls; its plan has ``notes`` on what was assumed."""
    return build(model, graph_of(parse_model(model.skeleton)), granularity, assumed=notes)
