"""Networks: times of collectives from measurements, formulas, or published or stated numbers.

    collective.py   a collective as a brick, and its key in the cache
    formulas.py     steps and volume of each operation, by the number of ranks
    fit.py          the α–β fit of measured times, piecewise linear
    series.py       measured times over sizes: medians, interpolation, the fit
    times.py        networks that estimate the time of a collective, and how it slows computation
    card_links.py   NVLink between cards of a host, by its published bandwidth

Must not know how collectives are measured, or what a training does with them.
"""
