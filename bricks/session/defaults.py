"""The defaults of a bench, and the limits of its options.

Here so that the command line can show them without importing the measuring code. Must not know how
they are used.
"""

from bricks.backends import default
from bricks.graph.form import ModelForm
from bricks.measure.defaults import PRECISION, TIMEOUT_S
from bricks.predict.defaults import MIN as MIN_PROBE_BRICKS
from bricks.sources.source import GRANULARITY, PROGRAMS_RUNTIME

__all__ = [
    "CACHE",
    "EFFORT",
    "GRANULARITY",
    "MAX_COPIES",
    "MAX_PROBE_BRICKS",
    "MAX_THREADS",
    "MAX_WORKERS",
    "MIN_PROBE_BRICKS",
    "OPTIMIZATION",
    "PRECISION",
    "PROBE_BRICKS",
    "PROBING_S",
    "PROGRAMS_RUNTIME",
    "RUNTIME",
    "TIMEOUT_S",
]

CACHE = "cache"
RUNTIME = default(ModelForm.MODELS)  # of models, unless another one is named
OPTIMIZATION = "all"
EFFORT = "full"

MAX_THREADS = 1024  # more than any host has cores; starting them would take minutes
MAX_COPIES = 1024  # each has a core at least
MAX_WORKERS = 64  # no model has so many branches

# Bricks that probing a target measures, and the seconds that it takes at most.
PROBE_BRICKS, PROBING_S = 96, 60.0
MAX_PROBE_BRICKS = 1000
