"""ONNX Runtime on the processor."""
