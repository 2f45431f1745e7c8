"""How exactly and how patiently something is measured where nobody says otherwise.

By themselves, so that the command line can show them without importing what measures.
"""

# The median is known this well, relative to it; see measure/rounds.
PRECISION = 0.01

# How long one brick may take to run, in seconds; a large model's step may take longer.
TIMEOUT_S = 60.0
