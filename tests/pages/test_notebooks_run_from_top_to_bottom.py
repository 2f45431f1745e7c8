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
def test_a_suite_is_generated_travels_and_comes_back() -> None:
    bricks, occurrences, met, models, alike, written, sizes, known, merged, estimates, weighty = (
        found(
            "generate_a_suite.ipynb",
            "len(union)",
            "occurrences",
            "unique",
            "[len(models), len(arrived.models), len(complete)]",
            "alike.grid",
            "len(digests)",
            "[suite_bytes, weight_bytes]",
            "[before.measured, measured.new_bricks, after.measured, remeasured]",
            "[merged.measurements, merged_again.measurements]",
            "[[e.low_s, e.estimate_s, e.high_s] for e in complete]",
            "most",
        )
    )
    assert bricks < occurrences / 3
    assert met == sorted(met) and met[-1] == bricks
    assert met[1] == met[0], "a deeper spotter has no other bricks"
    assert models == [8, 8, 8]
    assert alike[0][1] == 1.0 > alike[0][2] > alike[0][3]
    assert written == 1, "written twice, it is the same"
    assert sizes[0] < sizes[1] / 100
    assert known == [0, bricks, bricks, 0]
    assert merged[0] > bricks and merged[1] == 0  # the probes of the call overhead too
    assert all(0 < low <= middle <= high for low, middle, high in estimates)
    assert 0 < weighty < bricks


@pytest.mark.slow
def test_a_latency_is_predicted_ever_better_and_for_another_target() -> None:
    bricks, new, shares, run, operators, threads, merged, there, answers, risks = found(
        "predict_a_latency.ipynb",
        "[known.measured, known.bricks]",
        "new_bricks",
        "[e.measured_share for e in steps.values()]",
        "[row.model, row.ratio]",
        "sum(part.share for part in explanation.operators)",
        "other.runtime.threads",
        "merged.measurements",
        "[there.new_bricks, there.bricks, len(there.failures)]",
        "[[e.low_s, e.estimate_s, e.high_s] for e in answers.values()]",
        "list(risks.values())",
        shorter={
            "min_rounds=6, max_rounds=12": "min_rounds=2, max_rounds=3",
            "gluon_dla34 gluon_mobilenet05 gluon_xception": "",
            "levit mobilenet_v2 poolformer regnet_y resnet18": "mobilenet_v2 resnet18",
        },
    )
    assert 0 < bricks[0] < bricks[1]
    assert new[0] == 0 and bricks[0] + sum(new) == bricks[1]
    assert shares[0] < shares[-1] == 1.0
    assert run[0] == "densenet121" and run[1] > 0
    assert operators == pytest.approx(1.0)
    assert threads == 2
    assert merged >= there[0] > 0
    assert there[0] < there[1] / 2 and there[2] == 0, "little effort measures few"
    assert len(answers) == len(risks) == 6
    assert all(0 < low <= middle <= high for low, middle, high in answers)
    assert all(0 <= risk <= 1 for risk in risks)


@pytest.mark.slow
def test_estimates_are_compared_with_full_runs() -> None:
    names, ratios, summary, errors, rounds, layers, new_s, whole_s, electra = found(
        "compare_with_runs.ipynb",
        "NAMES",
        "{row.model: row.ratio for row in rows}",
        "[summary.models, summary.max_abs_error, summary.noise_floor, summary.speedup_latency]",
        "list(errors)",
        "[len(runs[row.plan.digest].rounds) for row in rows]",
        "list(of_layers.values())",
        "sum(new_s)",
        "sum(row.measured_s.value for row in rows)",
        "[len(set(rows[1].plan.keys) - set(rows[0].plan.keys)), len(set(rows[1].plan.keys))]",
        shorter={
            "min_rounds=8, max_rounds=12": "min_rounds=3, max_rounds=4",
            "gluon_mobilenet05 levit": "",
            "wav2vec2": "",
        },
    )
    assert list(ratios) == names
    assert all(ratio > 0 for ratio in ratios.values())
    assert errors == sorted(abs(ratio - 1) for ratio in ratios.values())
    assert summary[:2] == [len(names), errors[-1]]
    assert summary[2] >= 0
    assert summary[3] == pytest.approx(whole_s / new_s), (
        "the picture adds up to the paper's measure"
    )
    assert min(rounds) >= 3
    assert len(layers) == 4
    assert 0 < electra[0] < electra[1] / 2, "two transformers share most bricks"


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
