"""Suites: benchmarks that travel to other hosts.

Must not know how anything is measured, nor what was.
"""

from bricks.suite.private import decoys
from bricks.suite.suite import Suite, read_suite, write_private_suite, write_suite

__all__ = ["Suite", "decoys", "read_suite", "write_private_suite", "write_suite"]
