"""Recompose the latency of whole models from measurements, and compare with whole-model runs.

Here so that whoever only predicts needs no runtime. Must not know how measurements came about.
"""
