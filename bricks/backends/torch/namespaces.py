"""Namespaces and operators of recorded calls that are not operators of PyTorch itself.

Must not import PyTorch.
"""

# Calls that save and restore the state of the random number generator.
GENERATOR = "generator"
GET_STATE, SET_STATE = "get_state", "set_state"

# Dynamically quantised products, whose weights are a packed object. A recording has a list of the
# int8 weight, the bias, scale and zero point in its place, and a replay packs these again.
QUANTIZED = "quantized"
PACKED = ("linear_dynamic", "linear_relu_dynamic")
