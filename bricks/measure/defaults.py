"""Default precision and limits of measuring.

In a module of their own, so that the command line can show them without slow imports.
"""

# The relative half-width of the interval of a median; see measure/rounds.
PRECISION = 0.01

# The most seconds that a brick may run; a large model's step may take longer.
TIMEOUT_S = 60.0

# The most seconds for learning a model's graph; see measure/allowance.
GRAPH_TIMEOUT_S = 600.0

# The most bricks that are loaded together, and the most bytes of their weights. One model's bricks
# are never divided between batches.
MAX_BRICKS = 2000
MAX_WEIGHT_BYTES = 2 << 30
