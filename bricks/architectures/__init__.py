"""Published architectures of language models as facts, and the ONNX decoders that follow from them.

Models are named by their makers' names (``llama-2-7b``) or by a size alone (``7B``). Decoders have
no weights: files of hundreds of kilobytes stand for models of any size. Must not know how decoders
are run or measured.
"""
