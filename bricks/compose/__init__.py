"""Recompose the latency of whole models from measurements, and compare with whole-model runs.

Here so that a program that only estimates needs no runtime. Must not know how measurements came
about.
"""
