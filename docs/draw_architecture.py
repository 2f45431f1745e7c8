"""Draw the order of the package as an SVG: ``python docs/draw_architecture.py``.

The picture follows from the table that the imports are checked against (tests/support/layers.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIGURE = ROOT / "docs" / "figures" / "architecture.svg"
sys.path.append(str(ROOT / "tests" / "support"))

from layers import LAYERS, RINGS  # noqa: E402

# Pixels.
WIDTH, ROW, GAP, LEFT, RIGHT, BOX = 780, 46, 8, 16, 420, 344

STYLE = """\
<style>
text { font: 13px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
.title { font-weight: bold; }
.note { fill: #59636e; }
.heart { fill: #ddf4ff; stroke: #54aeff; }
.ring { fill: #f6f8fa; stroke: #d1d9e0; }
.arrow { stroke: #59636e; fill: none; marker-end: url(#tip); }
marker path { fill: #59636e; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .note { fill: #9198a1; }
  .heart { fill: #0c2d6b; stroke: #388bfd; }
  .ring { fill: #151b23; stroke: #3d444d; }
}
</style>
"""
TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
    ' orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker></defs>\n'
)

# The rows around the heart, from above: packages, all of a folder if a name ends with a dot.
GROUPS = {
    "commands, tables and pages": ("cli", "report", "web", "api"),
    "questions about many models or hosts": ("analysis", "fleet"),
    "studies: one question each": ("studies.",),
    "runtimes: one package each, by entry point": ("backends.",),
    "benchmarks that travel": ("suite",),
}

# What the rows of the heart do, by one of their packages.
DOES = {
    "studies": "ask in one order; inference: whole models",
    "session": "an open cache and a runtime, handed to studies",
    "compose": "adds up latencies; opens what a word names",
    "measure": "walks over bricks in a child process",
    "store": "keeps raw samples; predicts what none has",
    "backends": "the interface of runtimes; statistics of samples",
    "decompose": "reads models, cuts them, finds equal bricks",
    "operators": "a row of facts for each operator",
    "graph": "nodes, types and values; facts of the host",
    "units": "a number with its interval",
    "errors": "the tree of errors",
}


def picture() -> str:
    """The SVG: layers of the heart on the left, the first below; rings on the right."""
    outer = {name for names in GROUPS.values() for name in names} | RINGS.keys()
    heart = [sorted(layer - outer - {"", "__main__", "_version"}) for layer in LAYERS]
    heart = [names for names in reversed(heart) if names]
    height = len(heart) * (ROW + GAP) + 66
    parts = [
        f'<text class="title" x="{LEFT}" y="24">heart: from a model to a number</text>',
        f'<text class="title" x="{RIGHT}" y="24">rings: import the heart</text>',
    ]
    for number, names in enumerate(heart):
        does = next(DOES[name] for name in names if name in DOES)
        parts += _row(LEFT, 40 + number * (ROW + GAP), ", ".join(names), does, "heart")
    for number, (title, prefixes) in enumerate(GROUPS.items()):
        y = 40 + number * (ROW + GAP)
        parts += _row(RIGHT, y, ", ".join(_names(prefixes)), title, "ring")
        parts.append(f'<path class="arrow" d="M{RIGHT - 4},{y + ROW / 2:g} H{LEFT + BOX + 6}"/>')
    note = "Rows import rows below them, and no ring but suites (session and sources open these)."
    parts.append(f'<text class="note" x="{LEFT}" y="{height - 10}">{note}</text>')
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Layers and rings of bricks">\n'
        f"{STYLE}{TIP}{body}\n</svg>\n"
    )


def _names(prefixes: Sequence[str]) -> Iterator[str]:
    for prefix in prefixes:
        if prefix.endswith("."):
            yield from (n.removeprefix(prefix) for n in sorted(RINGS) if n.startswith(prefix))
        else:
            yield prefix


def _row(x: int, y: int, text: str, does: str, kind: str) -> list[str]:
    return [
        f'<rect class="{kind}" x="{x}" y="{y}" width="{BOX}" height="{ROW}" rx="6"/>',
        f'<text x="{x + 12}" y="{y + 19}">{text}</text>',
        f'<text class="note" x="{x + 12}" y="{y + 37}">{does}</text>',
    ]


if __name__ == "__main__":
    FIGURE.write_text(picture(), encoding="utf-8")
