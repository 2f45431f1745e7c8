"""Networks: times of collectives from measurements, formulas, or published or stated numbers.

    collective.py   a collective as a brick: its key in the cache, its steps and volume by ranks
    series.py       measured times over sizes: medians, interpolation, the α–β fit
    times.py        networks that estimate the time of a collective, and how it slows computation:
                    measured ones, stated ones, and NVLink between the cards of a host

Must not know how collectives are measured, or what a training does with them.
"""
