"""Default precision and time limit of measuring.

In a module of their own, so that the command line can show them without slow imports.
"""

# The relative half-width of the interval of a median; see measure/rounds.
PRECISION = 0.01

# The most seconds that a brick may run; a large model's step may take longer.
TIMEOUT_S = 60.0
