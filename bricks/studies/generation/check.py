"""Generates text on this host, greedily, to compare its latencies with a prediction.

Half of the texts are generated before bricks are measured and half after, so that both see the same
machine state. Must not know how results are shown.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from bricks.closing import Closing
from bricks.errors import UsageError
from bricks.measure.protocol.serving import GenerateText, LoadDecoder, TextTimes
from bricks.studies.generation.result import CheckedGeneration, GenerationResult
from bricks.studies.generation.steps import OnnxSteps, Steps

if TYPE_CHECKING:
    from bricks.session.workspace import Workspace
    from bricks.studies.generation.options import Generation

# Timeouts of loading a decoder and of generating a text.
_LOAD_TIMEOUT_S, _TEXT_TIMEOUT_S = 600.0, 1800.0

# Seconds of each half of the texts, and the fewest and most texts of it.
_SERIES_S, _MIN_TEXTS, _MAX_TEXTS = 10.0, 3, 40


class GeneratedText(Closing):
    """A decoder that generates here; a context manager."""

    def __init__(self, workspace: Workspace, steps: Steps, generation: Generation) -> None:
        if generation.qps is not None:
            raise UsageError("--check generates texts that begin together: leave out --qps")
        if generation.step_s:
            raise UsageError("--check measures what is between two steps: leave out --step-cost")
        if not isinstance(steps, OnnxSteps):
            raise UsageError(
                "--check generates with ONNX Runtime: give an ONNX file, or leave it out"
            )
        self._workspace, self._name, self._generation = workspace, steps.title, generation
        self._opened = ExitStack()
        self._texts: list[TextTimes] = []
        self._worker = self._opened.enter_context(workspace.worker())
        try:
            model = steps.read(workspace, generation.batch, 1, generation.prompt_tokens)
            load = LoadDecoder(model.skeleton, steps.decoder)
            self._worker.ask(load, timeout_s=_LOAD_TIMEOUT_S)
            self._text()  # the first text warms up
        except BaseException:
            self._opened.close()
            raise

    def close(self) -> None:
        """End the worker."""
        self._opened.close()

    def _text(self) -> TextTimes:
        asked = self._generation
        request = GenerateText(asked.batch, asked.prompt_tokens, asked.new_tokens)
        return self._worker.ask(request, timeout_s=_TEXT_TIMEOUT_S)

    def generate(self) -> None:
        """Generate half of the texts."""
        texts: list[TextTimes] = []
        with self._workspace.timing():
            while len(texts) < _MIN_TEXTS or (
                sum(text.total_s for text in texts) < _SERIES_S and len(texts) < _MAX_TEXTS
            ):
                self._workspace.progress(f"generating with {self._name}", len(texts) / _MAX_TEXTS)
                texts.append(self._text())
        self._texts += texts

    @property
    def generation(self) -> Generation:
        """The generation of the options, with the measured seconds between two steps."""
        return replace(self._generation, step_s=self._between_s)

    @property
    def _between_s(self) -> float:
        return median(seconds for text in self._texts for seconds in text.between_s)

    def checked(self, result: GenerationResult) -> GenerationResult:
        """Generate the second half of the texts; return ``result`` with the medians of all."""
        self.generate()
        further, first = self._generation.new_tokens - 1, self._generation.prompt_tokens
        steps = np.median([text.steps_s for text in self._texts], axis=0)
        totals = [text.total_s for text in self._texts]
        ttfts = [text.between_s[0] + text.steps_s[0] for text in self._texts]
        rest = [total - ttft for total, ttft in zip(totals, ttfts, strict=True)]
        tokens = self._generation.batch * self._generation.new_tokens
        return replace(
            result,
            checked=CheckedGeneration(
                texts=len(self._texts),
                ttft_s=median(ttfts),
                tpot_s=median(rest) / further if further else None,
                tokens_per_s=tokens / median(totals),
                step_s=self._between_s,
                steps_s={first + n: float(s) for n, s in enumerate(steps[1:].tolist())},
            ),
        )
