"""The memory that a plan needs for values, weights and workspaces of kernels.

Rules are ONNX Runtime's on CPU; tests and ``benchmarks/memory.py`` compare them with the runtime.
Must not know how bricks are measured, or how results are used.
"""
