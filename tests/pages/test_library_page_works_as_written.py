"""The how-to of docs/api.md: a model edited in memory, measured with the real runtime."""

import re
from pathlib import Path

import pytest
from pages import DOCS, ROOT, blocks, slow_unless_changed


@slow_unless_changed(DOCS / "api.md")
def test_a_model_is_edited_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(tmp_path)
    (written,) = (block.text for block in blocks(DOCS / "api.md") if block.language == "python")
    exec(compile(written, "api.md", "exec"), {})
    assert re.fullmatch(r"\d+\.\d\d ms, without the block \d+\.\d\d ms\n", capsys.readouterr().out)
