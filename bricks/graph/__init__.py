"""Read ONNX without its weights, make shapes concrete, synthesise weights and inputs.

Here so that everything after works on graphs of known types. Must not know bricks or runtimes.
"""
