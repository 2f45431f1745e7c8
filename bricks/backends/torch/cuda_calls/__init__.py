"""The calls that CUDA makes, from a program that was recorded on the processor.

Rules rewrite calls: PyTorch chooses other operators on a GPU for batch norm, attention, dropout,
optimisers and more. Must not import PyTorch: a host that asks may lack it.
"""

from bricks.backends.torch.cuda_calls.translation import translated

__all__ = ["translated"]
