"""Steps of published decoders as PyTorch's programs on CUDA, written from their dimensions.

A step is written call by call, as recording it on a GPU would have it; nothing is run. Must import
neither PyTorch nor know any architecture by name.
"""

from bricks.backends.torch.decoders.step import decoder_step as decoder_step
