"""Parse sizes of dimensions from user options: their limits, and shapes as text.

Separate from the module that makes shapes concrete, because the command line's help needs this too,
and importing onnx would take longer than printing the help. Must not know models.
"""

from __future__ import annotations

from collections.abc import Sequence

from bricks.errors import UsageError

# The largest size in options: runtimes use 32-bit counts in places, and protobuf 64-bit ones.
LARGEST_DIM = 2**31 - 1

RANGE = f"dimensions are whole numbers from 0 to {LARGEST_DIM}"


# Stands for a size that is left as the file gives it.
AS_GIVEN = "?"


def parse_shape(text: str) -> tuple[str, tuple[int | None, ...]]:
    """``NAME=1x3x224x224`` as name and shape; ``NAME=`` is a scalar.

    A ``?`` leaves that axis as the file has it: its size is None. Names may hold ``=``: the last
    one separates. Raises :class:`UsageError`.
    """
    name, separator, dims = text.rpartition("=")
    if not separator or not name:
        raise UsageError(f"not a shape: '{text}': give NAME=1x3x224x224")
    words = dims.strip().lower().split("x") if dims.strip() else []
    sizes = [word for word in words if word != AS_GIVEN]
    # isdecimal alone admits digits of other scripts, and int() alone admits "1_0" and "+1".
    if not all(size.isascii() and size.isdecimal() for size in sizes):
        raise UsageError(f"not a shape: '{text}': '{dims}' is not a list like 1x3x224x224")
    # The length first, because Python refuses to parse numbers of thousands of digits.
    if any(len(size) > 18 or int(size) > LARGEST_DIM for size in sizes):
        raise UsageError(f"not a shape: '{text}': {RANGE}")
    return name, tuple(None if word == AS_GIVEN else int(word) for word in words)


def shown_shape(dims: Sequence[int | str | None]) -> str:
    """A shape as :func:`parse_shape` reads it; what is no number is left as the file has it."""
    return "x".join(str(dim) if isinstance(dim, int) else AS_GIVEN for dim in dims)
