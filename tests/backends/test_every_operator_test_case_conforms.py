from __future__ import annotations

import re
from collections.abc import Sequence

import onnx
import onnxruntime
import pytest
from conformance import CUTS, FINDINGS, OPERATORS, PACKAGED, PAGE, Result, examine_all, word

pytestmark = pytest.mark.slow

KINDS = (OPERATORS, *PACKAGED)
# A row of the page: tried, run by the runtime, (exact, close,) different, refused.
ROW = r"^\| ([\w-]+) \| (\w+) \| (\d+) \| (\d+) \| \d+ \| \d+ \| (\d+) \| (\d+)"


@pytest.fixture(scope="module")
def results() -> Sequence[Result]:
    return examine_all(KINDS)


def test_cases_that_the_runtime_runs_decompose_and_chain_exactly(results: Sequence[Result]) -> None:
    run = [result for result in results if result.runs]
    assert sum(result.kind == OPERATORS for result in run) >= 1350
    wrong = {
        (result.name, cut): result.cuts.get(cut)
        for result in run
        for cut in CUTS
        if word(result, cut) not in (("exact",) if cut == "executed" else ("exact", "close"))
    }
    assert wrong == {}


def test_every_brick_is_measured_or_fails_by_name(results: Sequence[Result]) -> None:
    run = [result for result in results if result.runs]
    assert [result.traceback for result in results if result.traceback] == []
    bricks = sum(n for result in run for n in result.bricks.values())
    failures = [f for result in run for of in result.failures.values() for f in of]
    assert bricks > 30_000
    assert len(failures) < 10
    assert all(reason.startswith("onnxruntime ") for reason in failures)


def test_cases_that_the_runtime_does_not_run_are_refused_in_one_line(
    results: Sequence[Result],
) -> None:
    others = [result for result in results if not result.runs]
    assert len(others) > 300
    for result in others:
        for cut in CUTS:
            # Pieces of the source graph are cut without asking the runtime: then each says it.
            refused = word(result, cut) == "refused"
            text = result.cuts[cut] if refused else "; ".join(result.failures[cut])
            assert text, f"{result.name} is neither run nor refused at {cut}"
            assert text.isprintable()
            assert "no clear line" not in text


def test_the_page_has_the_results(results: Sequence[Result]) -> None:
    page = PAGE.read_text()
    versions = f"onnx {onnx.__version__} with ONNX Runtime {onnxruntime.__version__}"
    assert versions in page, "make conformance"
    # Which bricks a model executes, and how sums are ordered, depends on the processor.
    told = {
        (kind, cut): tuple(map(int, counts))
        for kind, cut, *counts in re.findall(ROW, page, re.MULTILINE)
        if kind in KINDS
    }
    assert told.keys() == {
        (kind, cut) for kind in KINDS for cut in CUTS if _counts(results, kind, cut)[0]
    }
    for (kind, cut), (tried, run, different, refused) in told.items():
        found = _counts(results, kind, cut)
        assert (tried, different, refused) == (found[0], *found[2:])
        # Some cases need a locale, and some kernels a processor, that not every host has.
        assert abs(run - found[1]) <= tried // 50


def _counts(results: Sequence[Result], kind: str, cut: str) -> tuple[int, int, int, int]:
    of = [result for result in results if result.kind == kind]
    words = [word(result, cut) for result in of if result.runs]
    return len(of), len(words), words.count("different"), words.count("refused")


def test_the_page_has_the_results_of_damaged_files() -> None:
    assert FINDINGS.exists()
    cases = re.search(r"^\| cases \| (\d+) \|$", PAGE.read_text(), re.M)
    assert cases
    assert int(cases[1]) >= 10_000
    assert re.search(r"^\| findings \| 0 \|$", PAGE.read_text(), re.M)
