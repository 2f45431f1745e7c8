"""MXNet on the processor, with its fusions or operator by operator."""
