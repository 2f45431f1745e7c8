"""Which outputs ONNX Runtime lets share the memory of an input.

Its allocation planner is not open to callers, so the rules of its kernels' registrations stand
here: views never move data (a Reshape costs nothing inside a model, and a copy outside of it), and
some kernels write over an input that nobody reads any more. A test holds them against the memory
that the runtime takes.
"""

from __future__ import annotations

from bricks.backends.inplace import Rules

# By domain and operator. The first output of these is their first input, seen otherwise.
_VIEWS = frozenset(("", op) for op in ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"))
# The inputs that the first output may overwrite. Arithmetic (Add, Mul, Sqrt) is not among them.
_ELEMENTWISE = (
    "Cast", "Celu", "Clip", "Elu", "HardSigmoid", "LeakyRelu", "LogSoftmax", "Relu",
    "ScatterElements", "Selu", "Shrink", "Sigmoid", "Softmax", "Softplus", "Softsign", "Tanh",
    "ThresholdedRelu", "Trilu",
)  # fmt: skip
_OVERWRITES: dict[tuple[str, str], tuple[int, ...]] = {
    **{("", op): (0,) for op in _ELEMENTWISE},
    # The summand of a fused residual connection.
    ("com.microsoft", "FusedConv"): (3,),
    ("com.microsoft", "NhwcFusedConv"): (3,),
    ("com.microsoft.nchwc", "Conv"): (3,),
}

RULES = Rules(_VIEWS, _OVERWRITES)
