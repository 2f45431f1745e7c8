"""Steps of decoders in ONNX files and programs, read as models for any number of tokens.

Must not know what is predicted of steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bricks.errors import UsageError
from bricks.graph.decoder import Decoder, decoder_of
from bricks.graph.model import Model
from bricks.graph.tensor import TensorType
from bricks.session.workspace import Workspace
from bricks.sources import Function, exactly_one, find_files, is_program
from bricks.zoo import is_entry


class Steps(Protocol):
    """The steps of a decoder."""

    def read(self, workspace: Workspace, batch: int, tokens: int, past: int) -> Model:
        """The model of a step of ``batch`` texts with ``tokens`` new tokens after ``past``."""

    def cache_bytes(self, batch: int, tokens: int) -> int | None:
        """Bytes of the KV cache of ``batch`` texts of ``tokens`` tokens; None if unknown."""


@dataclass(frozen=True, slots=True)
class OnnxSteps:
    """Steps of a decoder in an ONNX file, or of the zoo."""

    name: str
    decoder: Decoder

    def read(self, workspace: Workspace, batch: int, tokens: int, past: int) -> Model:
        """See :class:`Steps`."""
        return workspace.read(
            self.name,
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

    name: str
    _input_bytes: dict[tuple[int, int], int]

    def read(self, workspace: Workspace, batch: int, tokens: int, past: int) -> Model:
        """See :class:`Steps`."""
        workspace.progress(f"recording {self.name} after {past} tokens", 0.0)
        step = Function(self.name, arguments={"tokens": tokens, "past_tokens": past})
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


def steps_of(name: str) -> Steps:
    """The decoder that ``name`` refers to: an ONNX file, a model of the zoo, or a program.

    Raises :class:`~bricks.errors.ModelError` for a model that is no decoder with a cache.
    """
    if is_entry(name):
        return ProgramSteps(name, {})
    if is_program(name):
        raise UsageError(
            f"{name} was recorded at one length: give a function that takes batch=, tokens= and"
            " past_tokens=, as FILE.py:FUNCTION"
        )
    return OnnxSteps(name, onnx_decoder(name))


def onnx_decoder(name: str) -> Decoder:
    """The decoder in an ONNX file, or of the zoo."""
    file = exactly_one(name, find_files(name))
    return decoder_of(file.path, file.title)
