"""PyTorch on the processor: recorded programs, as they are written or compiled."""
