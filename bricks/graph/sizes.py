"""Parse and print shapes as text (``NAME=1x3x224x224``), within the limits of sizes.

The command line's help imports this module, and importing onnx takes longer than printing the help:
must not import onnx.
"""

from __future__ import annotations

from collections.abc import Sequence

from bricks.errors import UsageError

# The largest size in options: runtimes use 32-bit counts in places, and protobuf 64-bit ones.
LARGEST_DIM = 2**31 - 1

RANGE = f"dimensions are whole numbers from 0 to {LARGEST_DIM}"

# Text of a size that stays as the file has it.
AS_IN_FILE = "?"


def parse_shape(text: str) -> tuple[str, tuple[int | None, ...]]:
    """Parse ``NAME=1x3x224x224`` as name and shape; ``NAME=`` is a scalar.

    A ``?`` leaves that axis as the file has it: its size is None. Names may hold ``=``: the last
    one separates. Raises :class:`UsageError`.
    """
    name, separator, dims = text.rpartition("=")
    if not separator or not name:
        raise UsageError(f"not a shape: '{text}': give NAME=1x3x224x224")
    words = dims.strip().lower().split("x") if dims.strip() else []
    sizes = [word for word in words if word != AS_IN_FILE]
    # isdecimal alone admits digits of other scripts, and int() alone admits "1_0" and "+1".
    if not all(size.isascii() and size.isdecimal() for size in sizes):
        raise UsageError(f"not a shape: '{text}': '{dims}' is not a list like 1x3x224x224")
    # The length first, because Python refuses to parse numbers of thousands of digits.
    if any(len(size) > 18 or int(size) > LARGEST_DIM for size in sizes):
        raise UsageError(f"not a shape: '{text}': {RANGE}")
    return name, tuple(None if word == AS_IN_FILE else int(word) for word in words)


def shown_shape(dims: Sequence[int | str | None]) -> str:
    """Return ``dims`` as :func:`parse_shape` reads it; a dimension that is no number is ``?``."""
    return "x".join(str(dim) if isinstance(dim, int) else AS_IN_FILE for dim in dims)
