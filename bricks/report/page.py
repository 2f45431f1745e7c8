"""Pages as self-contained HTML files: no network, no server, no other file.

Templates are next to this module; Jinja escapes all model names, and scripts only ever set text.
Bars and intervals are styles of elements. A heat map is a PNG of one pixel a cell, which browsers
enlarge: written by hand, since a page has many and each has at most a thousand cells. Must not
compute what it shows.
"""

from __future__ import annotations

import base64
import json
import math
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.errors import UsageError, printable
from bricks.report.tables import billions, percent, seconds, size
from bricks.report.words import target_text

if TYPE_CHECKING:
    import jinja2

    from bricks.system import Target
    from bricks.units.interval import Interval

_TEMPLATES = Path(__file__).with_name("templates")


def check_renderer() -> None:
    """Raise :class:`UsageError` if the packages that make pages are not installed."""
    for package in ("altair", "jinja2", "vl_convert"):
        if find_spec(package) is None:
            raise UsageError(
                f"reports need {package}, which is not installed: pip install 'onnx-bricks[report]'"
            )


def render_page(name: str, **values: Any) -> str:
    """The page of the template called ``name``; undefined values are errors."""
    return environment(_TEMPLATES).get_template(f"{name}.html.jinja").render(**values)


def environment(folder: Path) -> jinja2.Environment:
    """The templates in ``folder``: values are escaped; the filters format quantities."""
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals |= {"library": library, "style": style}
    templates.filters |= {
        "seconds": seconds,
        "size": size,
        "percent": percent,
        "printable": printable,
        "giga": billions,
        "millions": _millions,
    }
    return templates


def style() -> str:
    """The style sheet of all pages."""
    return (_TEMPLATES / "report.css").read_text(encoding="utf-8")


def script(name: str) -> str:
    """The script called ``name``."""
    return (_TEMPLATES / f"{name}.js").read_text(encoding="utf-8")


def target_label(target: Target) -> str:
    """The label of a target, if there are several."""
    level = target.runtime.optimization
    return target_text(target) + ("" if level == "all" else f", optimisation {printable(level)}")


@cache
def library() -> str:
    """Vega, Vega-Lite and the embedding library, as one script."""
    import altair
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version)
    return script.replace("</script", "<\\/script")


def in_script(data: Mapping[str, Any]) -> str:
    """``data`` as JSON for a script element, with all tags escaped."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _millions(value: float) -> str:
    return f"{value / 1e6:.3g}"


# Wider ranges are drawn on a logarithmic scale.
_MOST_LINEAR = 8.0


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale from ``low`` to ``high``, logarithmic where it would else hide small values."""

    low: float
    high: float
    logarithmic: bool

    @classmethod
    def of(cls, intervals: Iterable[Interval]) -> Scale:
        """The scale of ``intervals``: from zero, or from the lowest end if they differ much."""
        every = list(intervals)
        ends = [max(each.high if math.isfinite(each.high) else each.value, each.value)
                for each in every]  # fmt: skip
        high = max(ends, default=1.0) or 1.0
        values = [each.value for each in every if each.value > 0]
        if not values or high / min(values) <= _MOST_LINEAR:
            return cls(0.0, high, logarithmic=False)
        lowest = min(max(each.low, each.value / 2) for each in every if each.value > 0)
        return cls(lowest / 1.1, high, logarithmic=True)

    def style(self, of: Interval) -> str:
        """The positions of an interval's ends and of its value in percent, as CSS variables."""
        low, value, high = map(self._percent, (of.low, of.value, of.high))
        return f"--l:{low:.1f}%;--w:{max(0.0, high - low):.1f}%;--v:{value:.1f}%"

    def _percent(self, value: float) -> float:
        if not self.logarithmic:
            return 100 * min(1.0, max(0.0, value / self.high))
        bounded = min(max(value, self.low), self.high)
        return 100 * math.log(bounded / self.low) / math.log(self.high / self.low)


def share_style(share: float) -> str:
    """The length of a bar that shows a share of the longest one."""
    return f"--s:{100 * max(0.0, min(1.0, share)):.1f}%"


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
