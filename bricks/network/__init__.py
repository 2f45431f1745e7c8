"""Networks: how long collectives take on them, from measurements, formulas or two stated numbers.

    collective.py   a collective as a brick: what it is, and its key in the cache
    formulas.py     steps and volume of each operation, by the number of ranks
    fit.py          the α–β fit of measured times, in pieces
    times.py        networks that tell how long a collective takes, and what it costs computing

Must not know how collectives are measured, or what a training does with them.
"""
