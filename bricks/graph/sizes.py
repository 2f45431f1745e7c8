"""Sizes of dimensions as people give them: what may be asked for, and shapes as text.

Apart from what makes the shapes of models concrete, since a command line that only shows its help
needs this too, and importing onnx takes longer than all of that. Must not know models.
"""

from __future__ import annotations

from bricks.errors import UsageError

# Of what options may ask for: runtimes count in 32 bits here and there, and protobuf in 64.
LARGEST_DIM = 2**31 - 1

RANGE = f"dimensions are whole numbers from 1 to {LARGEST_DIM}"


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """``NAME=1x3x224x224`` as name and shape; ``NAME=`` is a scalar.

    Names may hold ``=``: the last one separates. Raises :class:`UsageError`.
    """
    name, separator, dims = text.rpartition("=")
    if not separator or not name:
        raise UsageError(f"not a shape: '{text}': give NAME=1x3x224x224")
    sizes = dims.strip().lower().split("x") if dims.strip() else []
    # isdecimal alone admits digits of other scripts, and int() alone admits "1_0" and "+1".
    if not all(size.isascii() and size.isdecimal() for size in sizes):
        raise UsageError(f"not a shape: '{text}': '{dims}' is not a list like 1x3x224x224")
    # The length first: Python refuses to read numbers of thousands of digits.
    if any(len(size) > 18 or not 1 <= int(size) <= LARGEST_DIM for size in sizes):
        raise UsageError(f"not a shape: '{text}': {RANGE}")
    return name, tuple(int(size) for size in sizes)
