"""The calls that CUDA makes, from a program that was recorded on the processor.

Rules rewrite calls: PyTorch chooses other operators on a GPU for batch norm, attention, dropout,
optimisers and more. Must not import PyTorch, so that whoever asks needs none.
"""

from bricks.backends.torch.cuda_calls.translation import translated

__all__ = ["translated"]
