"""Cut graphs into bricks, tell which bricks are the same, and plan how they make up a model.

Here so that neither measuring nor estimating has to read ONNX. Must not know runtimes.
"""
