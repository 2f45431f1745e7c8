"""What is committed of each notebook is a whole run of its sources; and it runs here, too.

A notebook that was changed has to be run before it is committed: only ``make test-all`` runs it
again.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from pages import NOTEBOOKS as FOLDER

NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
MAX_BYTES = 500_000

_spec = importlib.util.spec_from_file_location("execute", FOLDER / "execute.py")
assert _spec is not None and _spec.loader is not None
execute = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(execute)


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook: NotebookNode) -> list[NotebookNode]:
    return [output for cell in code(notebook) for output in cell.outputs]


def found(name: str, *expressions: str, shorter: Mapping[str, str] | None = None) -> list[Any]:
    """Run a notebook, as it is committed; what these expressions are at its end.

    What is ``shorter`` takes the place of what takes long: fewer rounds, or fewer models.
    """
    notebook = read(FOLDER / name)
    for long, short in (shorter or {}).items():
        (cell,) = (cell for cell in code(notebook) if long in cell.source)
        cell.source = cell.source.replace(long, short)
    notebook.cells.append(
        new_code_cell(f"import json\nprint(json.dumps([{', '.join(expressions)}]))", id="look")
    )
    (said,) = outputs(execute.executed(notebook))[-1:]
    values: list[Any] = json.loads(said.text)
    return values


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_what_is_committed_is_one_run_of_these_sources(name: str) -> None:
    notebook = read(FOLDER / name)
    assert notebook.metadata.bricks.sources_sha256 == execute.sources_digest(notebook), (
        f"{name} was changed after it ran: make notebooks"
    )
    for cell, number in zip(code(notebook), count(1), strict=False):
        assert cell.execution_count == number
    assert {output.output_type for output in outputs(notebook)} <= {
        "display_data",
        "execute_result",
    }


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_what_is_committed_shows_pictures_and_tells_nothing_of_a_machine(name: str) -> None:
    notebook = read(FOLDER / name)
    pictures = [output for output in outputs(notebook) if "image/png" in output.get("data", {})]
    assert len(pictures) >= 3
    assert (FOLDER / name).stat().st_size < MAX_BYTES
    assert execute.told(notebook) == []
    assert notebook.metadata.keys() == {"bricks", "kernelspec", "language_info"}
    assert all(cell.metadata == {} for cell in notebook.cells)


@pytest.mark.slow
def test_a_file_of_ones_own_is_answered_here_and_elsewhere() -> None:
    bricks, ends, ratios, images, operators, elsewhere = found(
        "your_own_onnx_file.ipynb",
        "[len(decomposition.plan.occurrences), len(decomposition.bricks), measured.new_bricks]",
        "[estimate.low_s, estimate.estimate_s, estimate.high_s]",
        "{row.model: row.ratio for row in comparison.rows}",
        "{label: len(curve) for label, curve in per_image.items()}",
        "sum(part.share for part in explanation.operators)",
        "[there.new_bricks, arrived.measured_share]",
    )
    assert bricks[0] > bricks[1] == bricks[2] > 0
    assert 0 < ends[0] <= ends[1] <= ends[2]
    assert ratios.keys() == {"small_net", "squeezenet", "resnet18"}
    assert images == {"1 thread": 4, "2 threads": 4}
    assert operators == pytest.approx(1.0)
    assert elsewhere == [bricks[1], 1.0]


@pytest.mark.slow
def test_servers_and_texts_are_predicted() -> None:
    rates, p50s, batches, tokens, times = found(
        "serving_and_llms.ipynb",
        "[highest.max_qps.value, highest.capacity_qps.value]",
        "[[each.low, each.value, each.high] for each in percentiles['p50'].values()]",
        "list(estimates)",
        "list(rates_of)",
        "[generated.ttft_s.value, generated.tpot_s.value]",
        shorter={
            "prompt_tokens=128, new_tokens=32": "prompt_tokens=16, new_tokens=4",
            "BATCHES = (1, 2, 4, 8)": "BATCHES = (1, 4)",
            "for batch in (1, 2, 4)": "for batch in (1, 2)",
        },
    )
    assert 0 < rates[0] <= rates[1]
    assert len(p50s) == 5 and all(0 < low <= value for low, value, _ in p50s)
    assert batches == ["batch 1", "batch 4"]
    assert tokens == [1, 2]
    assert times[0] > times[1] > 0


@pytest.mark.slow
def test_estimates_are_compared_with_full_runs() -> None:
    names, ratios, summary, errors, layers, met = found(
        "compare_with_runs.ipynb",
        "NAMES",
        "{row.model: row.ratio for row in rows}",
        "[summary.models, summary.max_abs_error, summary.noise_floor, summary.speedup_latency]",
        "sorted(errors.values())",
        "list(of_layers.values())",
        "[len(seen), total]",
        shorter={
            "min_rounds=8, max_rounds=12": "min_rounds=3, max_rounds=4",
            "gluon_mobilenet05 levit": "",
            "wav2vec2": "",
        },
    )
    assert list(ratios) == names
    assert errors == sorted(abs(ratio - 1) for ratio in ratios.values())
    assert summary[:2] == [len(names), errors[-1]]
    assert summary[2] >= 0 and summary[3] > 0
    assert len(layers) == 4
    assert 0 < met[0] < met[1]


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    return tmp_path / "small.ipynb"


def write(path: Path, *sources: str) -> bytes:
    cells = [new_code_cell(source, id=f"cell{i}") for i, source in enumerate(sources)]
    nbformat.write(new_notebook(cells=cells), path)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("1 / 0", "a cell fails: ZeroDivisionError: division by zero"),
        ("import sys\nprint('oh', file=sys.stderr)", "cell 1 warns: oh"),
        ("from pathlib import Path\nprint(Path.cwd())", "its outputs tell of this machine: /"),
        ("import socket as s\nf'on {s.gethostname()}'", "its outputs tell of this machine: "),
    ],
)
@pytest.mark.slow
def test_what_should_not_be_kept_is_not(
    source: str, reason: str, notebook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = write(notebook, source)
    assert execute.main([str(notebook)]) == 1
    assert notebook.read_bytes() == before
    assert capsys.readouterr().err.startswith(f"small.ipynb: {reason}")


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes(notebook: Path) -> None:
    write(notebook, "from IPython.display import Markdown\nMarkdown('**4** `2 / 2`')", "print(5)")
    assert execute.main([str(notebook)]) == 0
    once = notebook.read_bytes()
    kept = read(notebook)
    assert kept.metadata.bricks.sources_sha256 == execute.sources_digest(kept)
    assert [output.get("data") for output in outputs(kept)] == [
        {"text/markdown": "**4** `2 / 2`"},
        None,
    ]
    assert execute.main([str(notebook)]) == 0
    assert notebook.read_bytes() == once


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_source_that_changed_after_its_run_is_noticed(name: str) -> None:
    changed = read(FOLDER / name)
    code(changed)[-1].source += "\n"
    assert changed.metadata.bricks.sources_sha256 != execute.sources_digest(changed)


@pytest.mark.slow
def test_architectures_are_searched_within_a_budget() -> None:
    counts, asked, progress, sizes, ratios, budget, highs = found(
        "architecture_search.ipynb",
        "[measured.new_bricks, measured.bricks, measured.models]",
        "len(latency)",
        "progress",
        "[weights(n) for n in finalists]",
        "[row.ratio for row in comparison.rows]",
        "BUDGET_S",
        "[e.high_s for e in predicted]",
    )
    assert 0 < counts[0] < counts[1] / 2 and counts[2] == 200
    assert asked > 250
    assert progress == sorted(progress) and progress[-1] == sizes[0] == max(sizes)
    assert len(ratios) == 5 and all(ratio > 0 for ratio in ratios)
    assert max(highs) <= budget
