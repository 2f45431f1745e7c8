"""Tests hold an error's type and the facts that it names, never its wording: see ``refused``."""

import ast
import builtins

import pytest
from commands import ROOT
from refusals import refused

from bricks.errors import ModelError, ShapeError

FILES = sorted((ROOT / "tests").rglob("*.py"))


def matched(source: str) -> list[int]:
    """The lines that match the text of an error, unless the error is one of Python's own."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [
        call.lineno
        for call in calls
        if ast.unparse(call.func) in ("pytest.raises", "raises")
        and any(keyword.arg == "match" for keyword in call.keywords)
        and not (call.args and hasattr(builtins, ast.unparse(call.args[0])))
    ]


def test_no_test_matches_the_wording_of_an_error() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in FILES}
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path, source in sources.items()
        if "match=" in source  # parsing takes time
        for line in matched(source)
    ]
    assert found == []


def test_one_that_does_would_be_found() -> None:
    assert matched("with pytest.raises(StoreError, match='is locked'):\n    pass") == [1]
    assert matched("with a, raises(\n    bricks.UsageError, match=said):\n    pass") == [1]
    assert matched("with pytest.raises(TypeError, match='max_bricks'):\n    pass") == []
    assert matched("with refused(Error, 'lab'), pytest.warns(Old, match='new'):\n    pass") == []


def test_a_refusal_has_its_type_and_names_its_facts() -> None:
    with refused(ModelError, "w0", 12, "bricks zoo") as caught:
        raise ModelError("tensor 'w0' ends at byte 12: run 'bricks zoo'")
    assert "w0" in str(caught.value)


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (ShapeError("tensor w0"), ("w0",)),  # one of another kind
        (ModelError("tensor w0"), ("w1",)),
        (ModelError("tensor w0 ends at byte 12"), ("w0", 2)),  # not as a word of its own
        (ModelError(""), ()),
    ],
)
def test_another_refusal_is_none(error: ModelError, named: tuple[object, ...]) -> None:
    with pytest.raises(AssertionError), refused(ModelError, *named):
        raise error


def test_a_refusal_of_two_lines_is_none() -> None:
    with pytest.raises(AssertionError), refused(ValueError, "w0"):
        raise ValueError("tensor\nw0")
