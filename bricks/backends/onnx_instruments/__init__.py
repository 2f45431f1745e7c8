"""Instruments of devices whose runtimes run ONNX models: small models that they load."""
