"""The ``bricks`` command, for tests: it waits to time for processes of the same test run alone.

``TESTS_LOCKS`` names the folder of the lock files; ``tests/conftest.py`` sets it.
"""

import os
from pathlib import Path

from bricks.measure import timing_lock

timing_lock.FOLDERS = (Path(os.environ["TESTS_LOCKS"]),)

from bricks.cli.main import main  # noqa: E402  # it reads no locks before it is called

main()
