"""The evaluation of the DLBricks paper, over again: what ``benchmarks/paper.py`` is made of."""
