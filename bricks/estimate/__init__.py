"""Recompose the latency of whole models from measurements, and compare with whole-model runs.

Here so that whoever only estimates needs no runtime. Must not know how measurements came about.
"""
