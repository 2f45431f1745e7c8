"""The version of the rule by which OpenVINO's graphs are grouped, and what it has changed.

The offer, which imports no runtime, compares kept plans with it. Must not know graphs.
"""

# Before 1, a DFT had the shape of ONNX instead of OpenVINO's own, and a TopK whose indices leave
# the model was not measured.
RULE = 1
REVISED = frozenset(("DFT", "TopK"))
