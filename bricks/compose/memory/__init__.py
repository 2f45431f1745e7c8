"""The memory that a plan needs for values, weights and workspaces of kernels.

The rules are those of ONNX Runtime on CPU, checked against it by tests and by
``benchmarks/memory.py``. Must not know how anything is measured, or how results are used.
"""
