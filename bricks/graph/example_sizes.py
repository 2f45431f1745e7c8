"""Example sizes for open dimensions, with which an error message suggests a working option.

No size is assumed silently: examples occur in suggestions only. Must not know files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_IMAGE, _TOKENS, _SAMPLES, _STEPS = 224, 128, 16000, 64
# At most so many channels make an image.
_CHANNELS = 4


def example_sizes(
    known: Mapping[str, Sequence[int | str] | None], dtypes: Mapping[str, str]
) -> dict[str, tuple[int, ...]]:
    """Return a complete shape for each input; a symbol gets one size wherever it occurs.

    ``known`` has the dimensions of each input: numbers, symbols, "" for a nameless open dimension;
    or None without a rank. ``dtypes`` are ONNX names.
    """
    bound: dict[str, int] = {}
    shapes = {}
    for name, dims in known.items():
        sizes = []
        for axis, dim in enumerate(dims if dims is not None else ("",)):
            if isinstance(dim, int):
                sizes.append(dim)
                continue
            usual = _usual(axis, dims or ("",), dtypes[name])
            sizes.append(bound.setdefault(dim, usual) if dim else usual)
        shapes[name] = tuple(sizes)
    return shapes


def _usual(axis: int, dims: Sequence[int | str], dtype: str) -> int:
    """Return a usual size of ``axis`` of an input with ``dims`` and the ONNX type ``dtype``."""
    if axis == 0 and len(dims) > 1:
        return 1
    if len(dims) == 4:
        last, first = dims[3], dims[1]
        channels = 3 if isinstance(last, int) and last <= _CHANNELS and axis != 3 else 1
        if axis == channels and not isinstance(first, int):
            return 3
        return _IMAGE
    if "INT" in dtype:
        return _TOKENS
    if len(dims) == 3 and axis == 1 and isinstance(dims[0], int) and dims[0] > 1:
        return 1  # the state of a recurrent network: layers, batch, units
    return _SAMPLES if len(dims) <= 2 else _STEPS
