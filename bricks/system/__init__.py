"""The host: its fingerprint, the limits on a process, and the target that it is part of.

Measurements of different hosts are never mixed. Must not know any runtime.
"""

from bricks.system.fingerprint import available_memory_bytes, fingerprint, physical_cores
from bricks.system.limits import logical_cpus
from bricks.system.load import ForeignLoad, ProcessorWait
from bricks.system.target import Runtime, System, Target

__all__ = [
    "ForeignLoad",
    "ProcessorWait",
    "Runtime",
    "System",
    "Target",
    "available_memory_bytes",
    "fingerprint",
    "logical_cpus",
    "physical_cores",
]
