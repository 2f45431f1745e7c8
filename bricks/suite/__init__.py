"""Suites: benchmarks that travel to other hosts.

Must not know how anything is measured, nor any measurement.
"""

from bricks.suite.suite import (
    Suite,
    decoys,
    pack_model,
    read_suite,
    unpack_model,
    write_private_suite,
    write_suite,
)

__all__ = [
    "Suite",
    "decoys",
    "pack_model",
    "read_suite",
    "unpack_model",
    "write_private_suite",
    "write_suite",
]
