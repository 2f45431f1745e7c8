"""Read ONNX without its weights, make shapes concrete, synthesise weights and inputs.

Separate so that later stages work on graphs of known types. Must not know bricks or runtimes.
"""
