"""Steps of decoders: as models for any number of tokens, and their latencies at any cache length.

Decoders are those of published architectures, of ONNX files and of programs. Latencies are
estimates at some lengths, interpolated between. Bricks that do not depend on the length are the
same for all lengths, so further lengths cost little to measure. Must not know how estimates are
made, nor what is predicted of steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from bricks import backends
from bricks.architectures.architecture import part_of
from bricks.architectures.decoder import decoder_model
from bricks.architectures.published import PUBLISHED, architecture, nearest_name
from bricks.backends.base import capability
from bricks.backends.programs import DecoderWriter
from bricks.compose.device.collectives import StepCollectives, collective_facts
from bricks.compose.estimate import device_facts, provenance_facts
from bricks.errors import ModelError, UsageError
from bricks.graph.decoder import Decoder, decoder_of
from bricks.graph.model import Model
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of
from bricks.reading.digest import digest
from bricks.sources import Function, exactly_one, find_files, is_program
from bricks.units.curve import Curve
from bricks.units.facts import with_ends
from bricks.units.interval import Interval, common_sum
from bricks.zoo import is_entry

if TYPE_CHECKING:
    from bricks.architectures.architecture import Architecture
    from bricks.compose.queueing.run import RunLatency
    from bricks.session.workspace import Workspace
    from bricks.studies.generation.options import Generation
    from bricks.system import Target

# Bytes of a weight on a GPU, and of an element of the cache.
_HALF_BYTES = 2

_EXAMPLES = "give a size such as 7B, a published architecture such as llama-3.1-8b, or a file"

# Cache lengths at which steps are estimated.
_LENGTHS = 4

# Half the width, relative to a step of one token, of an error that all its bricks share. Such a
# step reads all weights, so the bandwidth of memory bounds it. Other users of a shared host change
# that bandwidth within minutes, and samples of a few seconds do not show it (docs/guides/llm.md).
MEMORY_DRIFT = 0.3


class Steps(Protocol):
    """The steps of a decoder."""

    @property
    def title(self) -> str:
        """The name of the decoder."""

    @property
    def most_tokens(self) -> int | None:
        """The most tokens that a text may have; None if that is not known."""

    def read(self, workspace: Workspace, batch: int, tokens: int, past: int) -> Model:
        """The model of a step of ``batch`` texts with ``tokens`` new tokens after ``past``."""

    def cache_bytes(self, batch: int, tokens: int) -> int | None:
        """Bytes of the KV cache of ``batch`` texts of ``tokens`` tokens; None if unknown."""


@dataclass(frozen=True, slots=True)
class OnnxSteps:
    """Steps of a decoder in an ONNX file, or of the zoo, whose models are called ``title``."""

    name: str
    decoder: Decoder
    title: str
    most_tokens: int | None = None

    def read(self, workspace: Workspace, batch: int, tokens: int, past: int) -> Model:
        """See :class:`Steps`."""
        return workspace.read(
            self.name,
            name=self.title,
            shapes=self.decoder.shapes(batch, tokens, past),
            values=self.decoder.values(batch, tokens, past),
        )

    def cache_bytes(self, batch: int, tokens: int) -> int | None:
        """See :class:`Steps`."""
        return self.decoder.cache_bytes(batch, tokens)


@dataclass(slots=True)
class ProgramSteps:
    """Recorded steps of a program, a function of ``batch``, ``tokens`` and ``past_tokens``.

    The KV cache are the input bytes that grow with the past tokens.
    """

    title: str
    _input_bytes: dict[tuple[int, int], int]
    most_tokens: int | None = None

    def read(self, workspace: Workspace, batch: int, tokens: int, past: int) -> Model:
        """See :class:`Steps`."""
        workspace.progress(f"recording {self.title} after {past} tokens", 0.0)
        step = Function(self.title, arguments={"tokens": tokens, "past_tokens": past})
        model = step.record(workspace.read_options(batch=batch))
        if tokens == 1:
            types = [type_ for _, type_ in model.inputs if isinstance(type_, TensorType)]
            self._input_bytes[batch, past] = sum(type_.size_bytes for type_ in types)
        return model

    def cache_bytes(self, batch: int, tokens: int) -> int | None:
        """See :class:`Steps`; known where steps of two lengths were recorded."""
        known = sorted(
            (past, of) for (size, past), of in self._input_bytes.items() if size == batch
        )
        if len(known) < 2:
            return None
        (first, low), (last, high) = known[0], known[-1]
        return (high - low) * tokens // (last - first)


@dataclass(frozen=True, slots=True)
class CardSteps:
    """Steps of a published architecture as programs of ``runtime`` on an accelerator, in 16 bits.

    They are written from its dimensions, so neither the runtime nor the accelerator is needed. If
    several ``cards`` divide it, steps and bytes are those of each.
    """

    title: str
    architecture: Architecture
    runtime: str
    cards: int = 1

    @property
    def most_tokens(self) -> int | None:
        """See :class:`Steps`."""
        return self.architecture.positions

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights of a card, each once."""
        return _HALF_BYTES * self._part.parameters

    @property
    def _part(self) -> Architecture:
        return part_of(self.title, self.architecture, self.cards)

    def read(self, workspace: Workspace, batch: int, tokens: int, past: int) -> Model:
        """See :class:`Steps`."""
        writer = capability(backends.offer(self.runtime), DecoderWriter, self.runtime)
        proto = writer.decoder_step(
            self.title, self.architecture, batch=batch, tokens=tokens, past=past, cards=self.cards
        )
        types = graph_of(proto).types
        inputs = tuple((each.name, types[each.name]) for each in proto.graph.input)
        skeleton = proto.SerializeToString(deterministic=True)
        return Model(self.title, Path(), skeleton, inputs, digest(proto))

    def cache_bytes(self, batch: int, tokens: int) -> int:
        """See :class:`Steps`; keys and values of each layer."""
        of = self._part
        return batch * tokens * 2 * of.layers * of.kept * _HALF_BYTES


def is_published(name: str) -> bool:
    """Whether ``name`` means a published architecture, whose steps are written."""
    return _architecture(name) is not None


def _architecture(name: str) -> str | None:
    return None if is_entry(name) or Path(name).exists() else architecture(name)


def card_steps(
    name: str, target: Target, quantisation: str | None = None, cards: int = 1
) -> CardSteps:
    """The steps of the published architecture ``name`` on the accelerator of ``target``.

    Raises :class:`UsageError` for a ``quantisation``, whose kernels nobody measured there, and
    :class:`~bricks.errors.ModelError` for ``cards`` that cannot divide the architecture.
    """
    published = _architecture(name)
    assert published is not None
    if quantisation not in (None, "none"):
        raise UsageError(
            f"--quant {quantisation}: kernels of such weights were not measured on"
            f" {target.system.name}: leave out --quant for weights of 16 bits"
        )
    part_of(published, PUBLISHED[published], cards)
    return CardSteps(published, PUBLISHED[published], target.runtime.backend, cards)


def steps_of(workspace: Workspace, name: str, quantisation: str | None = None) -> Steps:
    """The decoder that ``name`` refers to: an architecture, an ONNX file, a zoo model, a program.

    The decoder of a published architecture, which has no weights, is written to a temporary folder,
    with the bits of ``quantisation``. Raises :class:`~bricks.errors.ModelError` for a model that is
    no decoder with a cache, and :class:`UsageError` for a ``quantisation`` of a model with weights.
    """
    published = _architecture(name)
    if published is not None:
        quantisation = quantisation or "none"
        facts = PUBLISHED[published]
        title = published if quantisation == "none" else f"{published} ({quantisation})"
        path = workspace.folder() / "decoder.onnx"
        path.write_bytes(decoder_model(published, facts, quantisation).SerializeToString())
        return OnnxSteps(str(path), decoder_of(path, title), title, facts.positions)
    if quantisation is not None:
        raise UsageError(f"--quant is for published architectures: {name} has weights of its own")
    if is_entry(name):
        return ProgramSteps(name, {})
    if is_program(name):
        raise UsageError(
            f"{name} was recorded at one length: give a function that takes batch=, tokens= and"
            " past_tokens=, as FILE.py:FUNCTION"
        )
    try:
        file = exactly_one(name, find_files(name))
    except ModelError as error:
        if Path(name).name != name or name.endswith(".onnx") or "did you mean" in str(error):
            raise
        meant = nearest_name(name)
        hint = f"did you mean {meant}?" if meant else _EXAMPLES
        raise ModelError(f"no decoder is called {name!r}: {hint}") from error
    return OnnxSteps(name, decoder_of(file.path, file.title), file.title)


def lengths_between(first: int, last: int) -> list[int]:
    """Cache lengths at which steps are estimated: both ends, and evenly spaced lengths between."""
    return sorted({round(length) for length in np.linspace(first, last, _LENGTHS)})


@dataclass(frozen=True, slots=True)
class DecoderStep:
    """A run of a decoder on ``batch`` sequences, each of ``tokens`` new tokens after ``past``.

    ``collectives`` are those of cards that divide the decoder, None on one card.
    """

    FACTS: ClassVar = (
        "batch", "tokens", ("past", "past_tokens"), with_ends("run.latency_s", "latency_s"),
        *device_facts("run.device"), *collective_facts("collectives"),
        *provenance_facts("run.provenance"),
    )  # fmt: skip

    batch: int
    tokens: int
    past: int
    run: RunLatency
    collectives: StepCollectives | None = None


@dataclass(frozen=True)  # without slots, for the cached curves
class StepTimes:
    """Estimated steps: ``prompts`` by the batch, ``steps`` of one token by batch and length.

    ``steps`` have the same ascending lengths for each batch.
    """

    prompts: Mapping[int, DecoderStep]
    steps: Mapping[int, Sequence[DecoderStep]]

    def at(self, batch: int, past: float) -> Interval:
        """The latency of a step of one token of ``batch`` sequences; linear in the length.

        ``batch`` is one of the estimated batch sizes.
        """
        return self._curves[batch].at(past)

    def graph_step_s(self, of: Generation) -> Interval | None:
        """The mean step of one token as a CUDA graph, for one batch of texts; None if unknown."""
        steps = self.steps[of.batch if of.qps is None else 1]
        known = [
            (step.past, step.run.device.graph_s)
            for step in steps
            if step.run.device is not None and step.run.device.graph_s is not None
        ]
        if not known or len(known) < len(steps):
            return None
        curve = Curve.through(known)
        pasts = range(of.prompt_tokens, of.prompt_tokens + of.new_tokens - 1)
        return common_sum(map(curve.at, pasts)).scaled(1 / len(pasts))

    def interpolation_error(self, batch: int) -> float:
        """The worst error of a length that is interpolated from its neighbours, relative to it."""
        return self._curves[batch].error if batch in self._curves else 0.0

    def by_batch(self, past: float) -> Curve:
        """Steps of one token after ``past`` others, by the number of sequences."""
        known = ((batch, curve.at(past)) for batch, curve in self._curves.items())
        return Curve.through(known, widens=False)

    @cached_property
    def _curves(self) -> Mapping[int, Curve]:
        """By the batch, seconds by the length of the cache."""
        return {
            batch: Curve.through((step.past, step.run.latency_s) for step in steps)
            for batch, steps in self.steps.items()
            if steps
        }
