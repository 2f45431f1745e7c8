"""Steps of published decoders as programs on an accelerator: an optional interface of offers.

Must not know any runtime.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from bricks.backends.capability import Capability

if TYPE_CHECKING:
    import onnx

    from bricks.architectures.architecture import Architecture


class DecoderWriter(Capability):
    """An optional interface of an offer: it writes decoders as the calls that it would make."""

    lacking: ClassVar[str] = "{name} does not know the calls of a decoder on an accelerator"

    @abstractmethod
    def decoder_step(
        self, name: str, of: Architecture, *, batch: int, tokens: int, past: int, cards: int = 1
    ) -> onnx.ModelProto:
        """Return the program of a step of ``batch`` texts with new ``tokens`` after ``past``.

        Weights and values have 16 bits. If several ``cards`` divide the decoder, the program is
        that of one of them. Does not import the runtime. Raises
        :class:`~bricks.errors.ModelError` for an architecture whose calls are not known, and for
        cards that cannot divide it.
        """
