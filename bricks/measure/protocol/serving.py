"""Requests to serve models to a load generator, and to generate text."""

from __future__ import annotations

from dataclasses import dataclass, field

from bricks.graph.decoder import Decoder
from bricks.measure.protocol.request import Request


@dataclass(frozen=True, slots=True)
class ServedBatch:
    """A batch: its size, what the model took of it, and how long its instance was occupied.

    That is from when the instance was free and the batch was there, until it is answered. Before,
    the instance had nothing to do for ``idle_s``. ``here_s`` are the seconds of each sample from
    its arrival until it is answered.
    """

    size: int
    run_s: float
    occupied_s: float
    idle_s: float
    here_s: tuple[float, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class LoadServed(Request[None]):
    """Load the model of each batch size, once for each of so many ``instances``."""

    models: tuple[tuple[int, bytes], ...]
    instances: int


@dataclass(frozen=True, slots=True)
class Serve(Request[tuple[ServedBatch, ...]]):
    """Serve the load generator that connects to the Unix socket ``path``, until it leaves.

    A batch is run when it has ``max_batch`` samples, or its first has waited for ``wait_s``. Where
    ``stand_in_s`` has the seconds of a batch of each size, memory is read for so long, and no model
    is run.
    """

    path: str
    max_batch: int
    wait_s: float
    instances: int
    stand_in_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadDecoder(Request[None]):
    """Load a decoder for any number of tokens, of which ``model`` is a step."""

    model: bytes
    decoder: Decoder


@dataclass(frozen=True, slots=True)
class TextTimes:
    """A text: seconds of each of the model's steps, and of what was before each."""

    steps_s: tuple[float, ...] = field(repr=False)
    between_s: tuple[float, ...] = field(repr=False)

    @property
    def total_s(self) -> float:
        """Seconds of all of it."""
        return sum(self.steps_s) + sum(self.between_s)


@dataclass(frozen=True, slots=True)
class GenerateText(Request[TextTimes]):
    """Generate texts of a ``batch`` once, greedily, after prompts of random tokens."""

    batch: int
    prompt_tokens: int
    new_tokens: int
