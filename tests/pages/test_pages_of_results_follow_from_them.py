"""Pages that sum up committed results agree with them, and every model's row can be printed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import accuracy
import accuracy_page
import accuracy_results
import collectives
import cost
import cost_page
import memory
import operators
import pytest
import transfer


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


def test_the_table_of_networks_is_written_from_its_results() -> None:
    rows = json.loads(collectives.RAW.read_text(encoding="utf-8"))["networks"]
    assert set(collectives.NETWORKS) <= set(rows)
    assert f"\n{collectives.table(rows)}\n" in collectives.PAGE.read_text(encoding="utf-8")


def test_the_page_about_memory_is_written_from_its_results() -> None:
    facts = json.loads(memory.RAW.read_text(encoding="utf-8"))
    assert memory.PAGE.read_text(encoding="utf-8") == memory.page(facts)


def test_the_rows_of_all_compared_models_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    accuracy.main(["--by-model"])
    printed = capsys.readouterr().out
    hosts = accuracy_results.hosts(accuracy.RESULTS)
    assert hosts
    assert printed.count("\n| ") == sum(len(host.rows) + len(host.cases) for host in hosts)


def test_the_page_about_operators_is_written_from_its_results() -> None:
    facts = json.loads(operators.RAW.read_text(encoding="utf-8"))
    text = operators.PAGE.read_text(encoding="utf-8")
    assert operators.page(facts, text) == text
