"""The oldest version of ONNX Runtime that runs, for its offer and its backend.

Separate from both, since the offer leads to the backend. Must not import the runtime.
"""

# The first version in which Python can set the size of the global thread pool.
OLDEST = "1.23"
