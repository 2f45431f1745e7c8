"""The calls of a recorded program on an accelerator: an optional interface of offers.

A program is recorded where it is written, often on a host without an accelerator. Here because
runtimes know which calls they make there. Must not know any runtime.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bricks.backends.capability import Capability

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, slots=True)
class TranslatedProgram:
    """A program with the calls of another provider; ``notes`` say what was assumed, in lines.

    ``untranslated`` are calls that the provider does not make, in words: no rule has theirs.
    """

    proto: onnx.ModelProto
    notes: tuple[str, ...] = ()
    untranslated: tuple[str, ...] = ()


class ProgramTranslator(Capability):
    """An optional interface of an offer: it knows the calls of programs on other providers."""

    lacking: ClassVar[str] = "{name} does not know the calls of a program on an accelerator"

    @abstractmethod
    def calls_on(self, provider: str, proto: onnx.ModelProto) -> TranslatedProgram:
        """Return the recorded program ``proto`` with the calls that it makes on ``provider``.

        Does not import the runtime. Raises :class:`~bricks.errors.BackendError` for a provider
        whose calls are not known.
        """
