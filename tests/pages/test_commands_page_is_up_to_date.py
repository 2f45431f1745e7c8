import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def commands() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_commands", DOCS / "write_commands.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_help_says(commands: ModuleType) -> None:
    written = (DOCS / "commands.md").read_text(encoding="utf-8")
    assert written == commands.page(), "run: .venv/bin/python docs/write_commands.py"


def test_the_page_does_not_depend_on_who_writes_it(
    commands: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = commands.page()
    for name, value in (("COLUMNS", "40"), ("NO_COLOR", "1"), ("BRICKS_CACHE", "elsewhere")):
        monkeypatch.setenv(name, value)
    assert commands.page() == before
