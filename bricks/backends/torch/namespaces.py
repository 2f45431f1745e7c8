"""Namespaces and operators of recorded calls that are not operators of PyTorch itself.

Must not import PyTorch.
"""

# Calls that save and restore the state of the random number generator.
GENERATOR = "generator"
GET_STATE, SET_STATE = "get_state", "set_state"
