"""Pages that sum up kept results agree with them, and all rows of the results can be printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import DOCS, RESEARCH, ROOT
from refusals import refused

from benchmarks import collectives
from benchmarks.__main__ import NAMES, benchmarks_in, main
from benchmarks.markdown import with_parts
from benchmarks.study import Options

RESULTS = Options().results
# Written before results were kept, or from more digits than they have: the next run writes it anew.
OLDER = ("growth", "transfer")


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OLDER])
def test_pages_are_written_from_the_results_that_are_kept(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "research"
    folder.mkdir()
    (tmp_path / "docs").mkdir()
    pages = (*RESEARCH.glob("*.md"), *DOCS.glob("*.md"))
    copies = {tmp_path / page.relative_to(ROOT): page for page in pages}
    copies[tmp_path / "README.md"] = ROOT / "README.md"
    committed = {copy: page.read_text(encoding="utf-8") for copy, page in copies.items()}
    stale = dict(committed)
    for benchmark in benchmarks_in(name):
        (results, *_) = benchmark.kept(RESULTS)
        for page, parts in {benchmark.page: benchmark.parts, **benchmark.others}.items():
            copy = (folder / page).resolve()
            outdated = dict.fromkeys(parts(results), "as it was before")
            stale[copy] = with_parts(stale[copy], benchmark.script, outdated)
    assert stale != committed
    for copy, text in stale.items():
        copy.write_text(text, encoding="utf-8")
    assert main([name, "--only-page", "--docs", str(folder)]) == 0
    assert {copy: copy.read_text(encoding="utf-8") for copy in copies} == committed


@pytest.mark.parametrize("name", NAMES)
def test_all_rows_can_be_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--rows"]) == 0
    printed = capsys.readouterr().out
    for benchmark in benchmarks_in(name):
        for results in benchmark.kept(RESULTS):
            assert printed.count("\n|") >= len(results.rows), benchmark.title


def test_all_networks_are_in_their_table() -> None:
    (benchmark,) = benchmarks_in("collectives")
    (results,) = benchmark.kept(RESULTS)
    assert {row.case for row in results.rows} == set(collectives.cases())


def test_a_part_that_a_page_lacks_is_named() -> None:
    script = "benchmarks/scaling.py"
    begin, end = f"<!-- steps: written by {script} -->", "<!-- /steps -->"
    page = f"Before.\n{begin}\nold\n{end}\nAfter, <!-- date -->then<!-- /date -->.\n"
    written = with_parts(page, script, {"steps": "new\n", "date": "now"})
    assert written == f"Before.\n{begin}\nnew\n{end}\nAfter, <!-- date -->now<!-- /date -->.\n"
    for broken in ("", page.replace(begin, ""), page.replace(end, ""), page + page):
        with refused(ValueError, begin, end):
            with_parts(broken, script, {"steps": "new"})
