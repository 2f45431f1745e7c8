"""Graphs of ONNX models and of recorded programs, their types and metadata, and synthetic values.

Later stages rely on graphs of known types. Must not know operators, bricks or runtimes.
"""
