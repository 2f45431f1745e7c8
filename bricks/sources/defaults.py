"""The defaults of reading models; here so that the command line can show them at once."""

from bricks.backends import Accepts, default

GRANULARITY = "executed"
PROGRAMS_RUNTIME = default(Accepts.PROGRAMS)  # of programs, unless another one is named
