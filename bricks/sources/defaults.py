"""The defaults of reading models; here so that the command line can show them at once."""

GRANULARITY = "executed"
PROGRAMS_RUNTIME = "torch"  # of programs, unless another one is named
