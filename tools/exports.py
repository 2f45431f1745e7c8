"""Models exported from PyTorch, which nothing here was tuned to, compared with full runs.

``make exports`` runs this by hand on a quiet machine (with a network: it takes five minutes); it
writes research/exports.json, which research/conformance.md shows. The models are those of
``exported_models.py``, made in an environment of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import onnxruntime
from wild import PAGE, THREADS, cells, compared, replace_section, summary

from bricks import Bench, read_model

FOUND = PAGE.with_name("exports.json")
MARKS = ("<!-- exports: written by tools/exports.py -->", "<!-- /exports -->")
EXPORTER = Path(__file__).with_name("exported_models.py")
# torch of PyPI brings gigabytes for GPUs where this version of it does not stand alone.
REQUIREMENTS = ("torch==2.13.0", "transformers==5.23.0", "onnxscript==0.7.2")


def export_all(folder: Path) -> None:
    """Write all models into ``folder``, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as environment:
        venv.create(environment, with_pip=True)
        python = str(Path(environment) / "bin" / "python")
        quiet = ("--quiet", "--disable-pip-version-check")
        subprocess.run([python, "-m", "pip", "install", *quiet, *REQUIREMENTS], check=True)
        subprocess.run([python, str(EXPORTER), str(folder)], check=True)


def examined(paths: Sequence[Path]) -> dict[str, Any]:
    """What is found for the models in these files, with nothing measured before."""
    models = [read_model(path) for path in paths]
    with tempfile.TemporaryDirectory() as cache, Bench(cache=cache, threads=1) as bench:
        system = bench.target.system.name
        plans = [bench.decompose(model).plan for model in models]
    rows: list[dict[str, Any]] = [
        {"name": model.name, "occurrences": len(plan.occurrences), "bricks": len(plan.keys)}
        for model, plan in zip(models, plans, strict=True)
    ]
    for threads in THREADS:
        compared(rows, models, threads)
    return {
        "onnxruntime": onnxruntime.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "system": system,
        "models": rows,
    }


def section() -> list[str]:
    """The section of research/conformance.md about these models, from what was found."""
    if not FOUND.is_file():
        return []
    found = json.loads(FOUND.read_text(encoding="utf-8"))
    rows = found["models"]
    return [
        MARKS[0],
        "## Models exported from PyTorch",
        "",
        f"Written by `make exports`: {len(rows)} untrained models of architectures that are not in"
        f" the zoo, exported by {REQUIREMENTS[0].replace('==', ' ')}"
        " (`tools/exported_models.py`). Ratios are those of"
        " [estimates](../docs/glossary.md#estimate) with all bricks measured to runs of"
        " the whole models, with ONNX Runtime"
        f" {found['onnxruntime']} on {found['system']} ({found['date']}).",
        "",
        "| | median error | 95th percentile | worst | geometric mean | inside the interval"
        " | half of its width |",
        "|---|--:|--:|--:|--:|--:|--:|",
        *(summary(rows, threads, widths=True) for threads in THREADS),
        "",
        "| model | occurrences | bricks | 1 thread | ratio | 2 threads | ratio |",
        "|---|--:|--:|--:|--:|--:|--:|",
        *(
            f"| {row['name']} | {row['occurrences']} | {row['bricks']} | {' | '.join(cells(row))} |"
            for row in rows
        ),
        MARKS[1],
    ]


def main() -> None:
    """Export, compare, and write the page's data and its section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="keep models here")
    parser.add_argument("--json", type=Path, default=FOUND)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        export_all(folder)
        found = examined(sorted(folder.glob("*.onnx")))
    options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.json == FOUND:
        replace_section(MARKS, section())
    for row in found["models"]:
        print(row["name"], *cells(row), file=sys.stderr)


if __name__ == "__main__":
    main()
