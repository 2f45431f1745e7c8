"""Write the numbers and tables of models into the zoo's README, from its manifests.

    python models/recipes/readme.py

Runs where bricks is installed; `make models` runs it too.
"""

from __future__ import annotations

from pathlib import Path

from bricks.zoo import ZooEntry, decoders, entries, programs

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN, END = "<!-- models: written by recipes/readme.py -->", "<!-- /models -->"


def counts() -> str:
    """How many models there are, by kind."""
    kinds = len(entries()), len(programs()), len(decoders())
    return (
        f"`bricks zoo list` shows {sum(kinds)} models: the {kinds[0]} ONNX models below, {kinds[1]}"
        f" PyTorch programs\nand {kinds[2]} decoders."
    )


def tables(found: list[ZooEntry]) -> str:
    """A table for each task, the task with the most models first."""
    tasks = sorted({entry.task for entry in found}, key=lambda task: (-_count(found, task), task))
    return "\n\n".join(_table(task, [e for e in found if e.task == task]) for task in tasks)


def _count(found: list[ZooEntry], task: str) -> int:
    return sum(entry.task == task for entry in found)


def _table(task: str, found: list[ZooEntry]) -> str:
    lines = [
        f"## {task.capitalize()} ({len(found)})",
        "",
        "| name | family | from | input | parameters | GFLOP |",
        "|---|---|---|---|--:|--:|",
    ]
    for entry in found:
        shapes = ", ".join("×".join(map(str, shape)) for _, _, shape in entry.inputs)
        flops = "unknown" if entry.flops is None else f"{entry.flops / 1e9:.2f}"
        cells = (entry.name, entry.family, entry.framework, shapes)
        lines.append(f"| {' | '.join(cells)} | {entry.parameters / 1e6:.1f} M | {flops} |")
    return "\n".join(lines)


def main() -> None:
    """Put the tables between the marks."""
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(
        f"{before}{BEGIN}\n{counts()}\n\n{tables(entries())}\n{END}{after}", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
