"""Pages that sum up committed results agree with them, and every model's row can be printed."""

from __future__ import annotations

import json
import sys

import accuracy
import cost
import cost_page
import pytest
import transfer


def test_the_page_about_cost_is_written_from_its_results() -> None:
    facts, noisy = (json.loads(p.read_text(encoding="utf-8")) for p in (cost.RAW, cost.NOISY))
    assert cost.PAGE.read_text(encoding="utf-8") == cost_page.page(facts, noisy)


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


def test_the_page_about_accuracy_names_the_largest_errors_of_all_models(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(accuracy.MODELS.read_text(encoding="utf-8"))
    assert accuracy.largest_errors(found) in accuracy.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["accuracy.py", "--by-model"])
    accuracy.main()
    printed = capsys.readouterr().out
    for rows in found.values():
        assert all(printed.count(f"| {row['model']} |") == len(found) for row in rows)
