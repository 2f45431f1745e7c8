"""Graphs of ONNX models and of recorded programs, their types and metadata, and synthetic values.

Separate so that later stages work on graphs of known types. Must not know operators, bricks or
runtimes.
"""
