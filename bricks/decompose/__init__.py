"""Cut graphs into bricks, identify equal bricks, and plan how they make up a model.

Separate so that neither measuring nor estimating has to read ONNX. Must not know runtimes.
"""
