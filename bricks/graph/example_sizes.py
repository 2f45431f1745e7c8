"""Example sizes for open dimensions, so that an error can show an option that works as it stands.

A size is never assumed silently: these only ever stand in a suggestion. Must not know files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_IMAGE, _TOKENS, _SAMPLES, _STEPS = 224, 128, 16000, 64
# At most so many channels make an image.
_CHANNELS = 4


def example_sizes(
    known: Mapping[str, Sequence[int | str] | None], dtypes: Mapping[str, str]
) -> dict[str, tuple[int, ...]]:
    """A complete shape for each input; a symbol gets one size wherever it occurs.

    ``known`` holds numbers, symbols and, for nameless open dimensions, "", by input; None: not even
    the rank is known.
    """
    bound: dict[str, int] = {}
    found = {}
    for name, dims in known.items():
        sizes = []
        for axis, dim in enumerate(dims if dims is not None else ("",)):
            if isinstance(dim, int):
                sizes.append(dim)
                continue
            usual = _usual(axis, dims or ("",), dtypes[name])
            sizes.append(bound.setdefault(dim, usual) if dim else usual)
        found[name] = tuple(sizes)
    return found


def _usual(axis: int, dims: Sequence[int | str], dtype: str) -> int:
    """A usual size of one axis of such an input."""
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
