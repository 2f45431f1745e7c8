"""Draw the output of a command as an SVG: ``python docs/draw_picture.py PROMPT FILE.svg < OUTPUT``.

Columns stay aligned in any font, because the SVG states the length of each line. The heading of a
table (a line without digits above one with some) is bold.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

# Pixels: of a character, between lines, from the edge to the text, down to the first baseline.
CHARACTER, LINE, MARGIN, FIRST = 7.8, 19, 16, 25

STYLE = """\
<style>
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
</style>
"""


def picture(prompt: str, lines: Sequence[str]) -> str:
    """An SVG of a ``prompt`` and the ``lines`` printed below it."""
    rows = [prompt, "", *lines]
    width = round(max(map(len, rows)) * CHARACTER) + 2 * MARGIN
    height = FIRST + LINE * (len(rows) - 1) + MARGIN + 1
    texts = "\n".join(_texts(rows))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}">\n{STYLE}'
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6"/>\n'
        f"{texts}\n</svg>\n"
    )


def _texts(rows: Sequence[str]) -> Iterator[str]:
    for number, (row, next_row) in enumerate(pairwise([*rows, ""])):
        if not row:
            continue
        kind = "prompt" if number == 0 else "head" if _is_heading(row, next_row) else "line"
        yield (
            f'<text class="{kind}" x="{MARGIN}" y="{FIRST + LINE * number}"'
            f' textLength="{len(row) * CHARACTER:.1f}" xml:space="preserve">{escape(row)}</text>'
        )


def _is_heading(row: str, next_row: str) -> bool:
    return not re.search(r"\d", row) and bool(re.search(r"\d.*\S {2,}\S", next_row))


if __name__ == "__main__":
    prompt, path = sys.argv[1:]
    Path(path).write_text(picture(prompt, sys.stdin.read().splitlines()), encoding="utf-8")
