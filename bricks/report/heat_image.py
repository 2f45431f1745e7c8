"""Draws a heat map as an image inside a page: a PNG of one pixel a cell, which browsers enlarge.

Written by hand, since a page has many and each has at most a thousand cells. Must not compute what
it shows.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

# From little to much, in steps that are as light or dark for the colour-blind.
_LIGHT, _DARK = (247, 251, 255), (8, 48, 107)

_SHADES = 256


def heat_image(cells: Sequence[Sequence[float]]) -> str:
    """The address (``data:image/png;…``) of an image of ``cells``, the greatest the darkest.

    All cells are light where the greatest is zero.
    """
    greatest = max(max(row) for row in cells)
    scale = (_SHADES - 1) / greatest if greatest > 0 else 0.0
    lines = b"".join(b"\0" + bytes(round(cell * scale) for cell in row) for row in cells)
    size = struct.pack(">IIBBBBB", len(cells[0]), len(cells), 8, 3, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, data)
        for kind, data in (
            (b"IHDR", size),
            (b"PLTE", _palette()),
            (b"IDAT", zlib.compress(lines, 9)),
            (b"IEND", b""),
        )
    )
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _palette() -> bytes:
    shades = (number / (_SHADES - 1) for number in range(_SHADES))
    return bytes(
        round(light + share * (dark - light))
        for share in shades
        for light, dark in zip(_LIGHT, _DARK, strict=True)
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
