"""Requests to serve models to a load generator, and to generate text."""

from __future__ import annotations

from dataclasses import dataclass, field

from bricks.graph.decoder import Decoder
from bricks.measure.protocol.request import Request


@dataclass(frozen=True, slots=True)
class ServedBatch:
    """A served batch: its size, the seconds that the model ran, and the seconds of its instance.

    The instance is occupied from when it is free and the batch is complete until the batch is
    answered; before, it was idle for ``idle_s``. ``here_s`` has the seconds of each sample from
    its arrival to its answer.
    """

    size: int
    run_s: float
    occupied_s: float
    idle_s: float
    here_s: tuple[float, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class LoadServed(Request[None]):
    """Load ``models``, by batch size, once for each of the ``instances``."""

    models: tuple[tuple[int, bytes], ...]
    instances: int


@dataclass(frozen=True, slots=True)
class Serve(Request[tuple[ServedBatch, ...]]):
    """Serve the load generator that connects to the Unix socket ``path``, until it leaves.

    A batch runs when it has ``max_batch`` samples, or its first sample has waited for ``wait_s``.
    ``stand_in_s`` has the seconds of a batch of each size for which memory is read in place of
    running a model; empty: models run.
    """

    path: str
    max_batch: int
    wait_s: float
    instances: int
    stand_in_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadDecoder(Request[None]):
    """Load a decoder for any number of tokens; ``model`` is one of its steps."""

    model: bytes
    decoder: Decoder


@dataclass(frozen=True, slots=True)
class TextTimes:
    """Times of a text: seconds of each step of the model, and seconds before each step."""

    steps_s: tuple[float, ...] = field(repr=False)
    between_s: tuple[float, ...] = field(repr=False)

    @property
    def total_s(self) -> float:
        """Seconds of the whole text."""
        return sum(self.steps_s) + sum(self.between_s)


@dataclass(frozen=True, slots=True)
class GenerateText(Request[TextTimes]):
    """Generate texts of a ``batch`` once, greedily, after prompts of random tokens."""

    batch: int
    prompt_tokens: int
    new_tokens: int
