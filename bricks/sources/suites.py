"""Models of a suite, which fixes their shapes and how they are cut; or bricks of a private one.

Must not know how suites are written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.errors import BricksError, UsageError
from bricks.sources.source import PrivateBricks, ReadOptions, ReadResult, Unread

if TYPE_CHECKING:
    from bricks import suite


def is_suite(reference: str) -> bool:
    """Whether ``reference`` names a suite."""
    return reference.lower().endswith(".zip")


@dataclass(frozen=True, slots=True)
class SuiteFile:
    """The suite in the archive that ``word`` is the path of."""

    word: str

    def open(self, options: ReadOptions) -> Iterator[ReadResult]:
        """Its models, or the bricks of a private suite.

        Raises :class:`UsageError` for a batch size, shapes or values, and for another granularity.
        """
        from bricks.suite import read_suite  # here: importing onnx takes a moment

        path = Path(self.word)
        if options.batch is not None or options.shapes or options.values:
            raise UsageError(
                f"the inputs in {path} are fixed: leave out --batch, --shape, --value and --inputs"
            )
        try:
            contents = read_suite(path)
        except BricksError as error:
            yield ReadResult(self.word, Unread(str(path), error))
            return
        yield from self._opened(contents, options.granularity)

    def _opened(self, contents: suite.Suite, granularity: str) -> Iterator[ReadResult]:
        path = Path(self.word)
        if contents.granularity != granularity:
            raise UsageError(
                f"{path} was cut at granularity {contents.granularity}: give --granularity"
                f" {contents.granularity}"
            )
        if contents.bricks:
            yield ReadResult(self.word, PrivateBricks(str(path), contents.bricks))
        for model in contents.models:
            yield ReadResult(self.word, model)
