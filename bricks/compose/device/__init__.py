"""A step on a device: how long each of its kernels takes where it stands, and when it begins.

Must not know any runtime, nor how measurements came about.
"""
