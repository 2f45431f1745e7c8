"""What was measured on GPUs, in ``results/gpu``, and what follows from it.

Nothing here needs a GPU.
"""
