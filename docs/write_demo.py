"""Write a picture of what a command prints, for the README.

What it prints comes in on standard input:

    make -s demo | .venv/bin/python docs/write_demo.py demo
    .venv/bin/bricks advise resnet50 --slo 40ms | .venv/bin/python docs/write_demo.py advise
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

FIGURES = Path(__file__).parent / "figures"
# The commands, and the width of their pictures in characters: longer lines are broken.
COMMANDS = {"demo": ("make demo", 100), "advise": ("bricks advise resnet50 --slo 40ms", 124)}

# In pixels.
_CHARACTER, _LINE, _MARGIN = 7.8, 19, 16

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


def picture(command: str, printed: str, characters: int) -> str:
    """The SVG of what a command prints; a line that is too long goes on in the next, indented."""
    lines = [line for long in printed.splitlines() for line in _wrapped(long, characters)]
    width = round(characters * _CHARACTER) + 2 * _MARGIN
    height = (len(lines) + 2) * _LINE + 2 * _MARGIN - _LINE // 2
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' width="{width}" height="{height}">',
            f"<style>\n{_STYLE}</style>",
            f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6"/>',
            _text("prompt", 0, f"$ {command}"),
            *_body(lines),
            "</svg>\n",
        ]
    )


def _wrapped(line: str, characters: int) -> list[str]:
    return textwrap.wrap(line, characters, subsequent_indent="  ", drop_whitespace=True) or [""]


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
    (name,) = sys.argv[1:]
    command, characters = COMMANDS[name]
    drawn = picture(command, sys.stdin.read(), characters)
    (FIGURES / f"{name}.svg").write_text(drawn, encoding="utf-8")
