"""A worker of the fake runtime whose collectives take as long as ``TESTS_COLLECTIVE_S`` says.

It notes in the folder ``TESTS_BEGUN``, under its number, that it has begun with one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from bricks.backends.fake.backend import FakeCollectives
from bricks.measure.worker import worker


def main() -> None:
    original = FakeCollectives.time

    def slow(*arguments: Any) -> Any:
        (Path(os.environ["TESTS_BEGUN"]) / str(os.getpid())).touch()
        time.sleep(float(os.environ["TESTS_COLLECTIVE_S"]))
        return original(*arguments)

    FakeCollectives.time = slow  # type: ignore[method-assign]
    worker.main()
