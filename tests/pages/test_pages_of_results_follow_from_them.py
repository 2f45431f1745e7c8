"""Pages that sum up committed results agree with them, and every model's row can be printed."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import accuracy
import accuracy_page
import accuracy_results
import collectives
import cost
import cost_page
import generation
import memory
import operators
import page_parts
import pytest
import runtimes
import same_model
import scaling
import scenarios
import torch_steps
import training
import transfer
from refusals import refused

SCRIPTS = (
    *(collectives, generation, operators, runtimes, same_model, scaling, scenarios, torch_steps),
    training,
)


def test_the_page_about_cost_is_written_from_its_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = tmp_path / "performance.md"
    committed = cost_page.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(cost_page, "PAGE", written)
    cost_page.write()
    assert written.read_text(encoding="utf-8") == committed


def test_the_rows_of_all_models_can_be_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cost.py", "--tables"])
    cost.main()
    printed = capsys.readouterr().out
    facts = json.loads(cost.RAW.read_text(encoding="utf-8"))
    for row in facts["efforts"]["full"]["rows"]:
        assert printed.count(f"| {row['model']} |") >= len(facts["efforts"])


def test_the_rows_of_all_targets_can_be_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["transfer.py", "--tables"])
    transfer.main()
    printed = capsys.readouterr().out
    results = json.loads(transfer.RAW.read_text(encoding="utf-8"))["results"]
    assert printed.count("\n| ") == len(results) + 2


def test_the_page_about_accuracy_and_the_readme_are_written_from_the_results() -> None:
    hosts = accuracy_results.hosts(accuracy.RESULTS)
    page, readme = (p.read_text(encoding="utf-8") for p in (accuracy.PAGE, accuracy.README))
    assert accuracy_page.page(hosts, page) == page
    assert accuracy_page.readme(hosts, readme) == readme


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_tables_are_written_from_the_results_that_are_kept(script: Any, tmp_path: Path) -> None:
    committed = script.PAGE.read_text(encoding="utf-8")
    page = tmp_path / "page.md"
    parts = rf"(<!-- ([\w ]+): written by benchmarks/{script.__name__}\.py -->\n).*?(<!-- /\2 -->)"
    emptied, count = re.subn(parts, r"\1\3", committed, flags=re.DOTALL)
    assert count
    page.write_text(emptied, encoding="utf-8")
    for words in [["--form", form] for form in runtimes.FORMS] if script is runtimes else [[]]:
        script.main(["--pages", "--page", str(page), *words])
    assert page.read_text(encoding="utf-8") == committed


def test_all_networks_are_in_their_table() -> None:
    rows = json.loads(collectives.RAW.read_text(encoding="utf-8"))["networks"]
    assert set(collectives.NETWORKS) <= set(rows)


def test_a_part_that_a_page_lacks_is_named() -> None:
    script = str(page_parts.ROOT / "benchmarks" / "scaling.py")
    begin, end = "<!-- steps: written by benchmarks/scaling.py -->", "<!-- /steps -->"
    page = f"Before.\n{begin}\nold\n{end}\nAfter.\n"
    written = page_parts.with_parts(page, script, {"steps": "new\n"})
    assert written == f"Before.\n{begin}\nnew\n{end}\nAfter.\n"
    for broken in ("", page.replace(begin, ""), page.replace(end, ""), page + page):
        with refused(ValueError, begin, end):
            page_parts.with_parts(broken, script, {"steps": "new"})


def test_the_page_about_memory_is_written_from_its_results() -> None:
    facts = json.loads(memory.RAW.read_text(encoding="utf-8"))
    assert memory.PAGE.read_text(encoding="utf-8") == memory.page(facts)


def test_the_rows_of_all_compared_models_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    accuracy.main(["--by-model"])
    printed = capsys.readouterr().out
    hosts = accuracy_results.hosts(accuracy.RESULTS)
    assert hosts
    assert printed.count("\n| ") == sum(len(host.rows) + len(host.cases) for host in hosts)
