"""The names of the two ways in which PyTorch runs modules: as they are written, or compiled.

They stand in recorded programs. Must not know how either is done.
"""

EAGER, COMPILED = "torch", "torch-compiled"
