"""Write ``figures/demo.svg``: ``make -s demo | .venv/bin/python docs/write_demo.py``."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).parent / "figures" / "demo.svg"

# In pixels, but for the width of a line in characters.
_CHARACTERS, _CHARACTER, _LINE, _MARGIN = 100, 7.8, 19, 16

# A terminal with a background of its own, so that it is legible on any page.
_STYLE = """\
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
       fill: #1f2328; white-space: pre; }
rect { fill: #f6f8fa; stroke: #d1d9e0; }
.head { font-weight: bold; }
.prompt { fill: #59636e; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  rect { fill: #151b23; stroke: #3d444d; }
  .prompt { fill: #9198a1; }
}
"""


def picture(printed: str) -> str:
    """The SVG of what the demo prints; a line that is too long goes on in the next, indented."""
    lines = [line for long in printed.splitlines() for line in _wrapped(long)]
    width = round(_CHARACTERS * _CHARACTER) + 2 * _MARGIN
    height = (len(lines) + 2) * _LINE + 2 * _MARGIN - _LINE // 2
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' width="{width}" height="{height}">',
            f"<style>\n{_STYLE}</style>",
            f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6"/>',
            _text("prompt", 0, "$ make demo"),
            *_body(lines),
            "</svg>\n",
        ]
    )


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, _CHARACTERS, subsequent_indent="  ", drop_whitespace=True) or [""]


def _body(lines: list[str]) -> Iterator[str]:
    for number, line in enumerate(lines, 2):
        if line:
            yield _text("head" if line.startswith("model ") else "line", number, line)


def _text(kind: str, number: int, line: str) -> str:
    """One line; its length is given, since columns must stay columns in every font."""
    x, y = _MARGIN, _MARGIN + _LINE * number + _LINE // 2
    length = f"{len(line) * _CHARACTER:.1f}"
    return (
        f'<text class="{kind}" x="{x}" y="{y}" textLength="{length}" xml:space="preserve">'
        f"{escape(line)}</text>"
    )


if __name__ == "__main__":
    HERE.write_text(picture(sys.stdin.read()), encoding="utf-8")
