"""Of a cache that version 0.1.0 wrote, every command says what that version said of it.

``python tests/whole/test_json_is_what_it_was.py`` records anew what they say, after a deliberate
change; the cache and the suites stay as they are, for what was written once must open for ever.
"""

from __future__ import annotations

import io
import json
import lzma
import math
import os
import sqlite3
import sys
import tarfile
import tempfile
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

SUPPORT = Path(__file__).resolve().parents[1] / "support"
if __name__ == "__main__":
    sys.path[:0] = [str(SUPPORT), str(SUPPORT.parents[1])]
    os.environ["BRICKS_PUBLISHED"] = os.devnull  # as in tests

from recording import COMMANDS, HOME, host, record  # noqa: E402  # found by the path above

from bricks.cli import main  # noqa: E402
from bricks.samples.measurement import PROTOCOL  # noqa: E402

KEPT = SUPPORT / "recorded" / "kept.tar.xz"
SAID = SUPPORT / "recorded" / "said.json.xz"

# Sums over sets differ in their last digits; what is predicted goes through linear algebra, which
# processors do in different orders.
CLOSE, PREDICTED_CLOSE = 1e-12, 1e-4
PREDICTED = {
    "advise", "diff", "explain", "predict a model never seen", "predict elsewhere",
    "predict without measuring", "probe", "report", "zoo coverage",
}  # fmt: skip


def unpack(folder: Path) -> None:
    """What was kept, as if it had been measured by today's protocol.

    Measurements of another protocol are not used. What is of interest here is what is said of them.
    """
    with tarfile.open(KEPT) as archive:
        archive.extractall(folder, filter="data")
    for cache in folder.glob("*/bricks.sqlite"):
        with closing(sqlite3.connect(cache)) as connection, connection:
            connection.execute("UPDATE measurements SET protocol = ?", (PROTOCOL,))


def run(*words: str) -> tuple[int, str]:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        status = main.run(list(words))
    return status, out.getvalue()


def here(*_: Any) -> Any:
    return host(HOME)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each command prints now."""
    folder = tmp_path_factory.mktemp("recorded")
    unpack(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bricks.session.workspace.fingerprint", here)
        patch.setattr("bricks.system.fingerprint", here)
        return dict(record(run, folder))


@pytest.fixture(scope="module")
def recorded() -> dict[str, str]:
    found: dict[str, str] = json.loads(lzma.decompress(SAID.read_bytes()))
    return found


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.slow
def test_a_command_says_what_it_said(
    name: str, said: dict[str, str], recorded: dict[str, str]
) -> None:
    status, _, now = said[name].partition("\n")
    before_status, _, before = recorded[name].partition("\n")
    assert status == before_status
    close = PREDICTED_CLOSE if name in PREDICTED else CLOSE
    assert differences(json.loads(before), json.loads(now), close) == []


def test_what_is_recorded_is_of_every_command(recorded: dict[str, str]) -> None:
    assert recorded.keys() == COMMANDS.keys()


def test_a_difference_is_found() -> None:
    before: dict[str, Any] = {"a": [1.0, "x", None], "b": {"c": 2, "d": True}}
    assert differences(before, before, CLOSE) == []
    changed: list[Any] = [
        {**before, "a": [1.0 + 1e-9, "x", None]},
        {**before, "a": [1.0, "x"]},
        {**before, "a": [1.0, "x", 0]},
        {**before, "b": {"c": 2.0, "d": True}},
        {**before, "b": {"d": True, "c": 2}},
        {"a": before["a"]},
    ]
    for now in changed:
        assert len(differences(before, now, CLOSE)) == 1, now


def differences(before: Any, now: Any, close: float, at: str = "") -> list[str]:
    """Where two documents differ: in keys and their order, in types, or in values."""
    if type(before) is not type(now):
        return [f"{at}: {before!r} became {now!r}"]
    if isinstance(before, dict):
        if list(before) != list(now):
            return [f"{at}: {list(before)} became {list(now)}"]
        return [d for k in before for d in differences(before[k], now[k], close, f"{at}.{k}")]
    if isinstance(before, list):
        if len(before) != len(now):
            return [f"{at}: {len(before)} became {len(now)}"]
        pairs = enumerate(zip(before, now, strict=True))
        return [d for i, (b, n) in pairs for d in differences(b, n, close, f"{at}[{i}]")]
    same = math.isclose(before, now, rel_tol=close) if isinstance(before, float) else before == now
    return [] if same else [f"{at}: {before!r} became {now!r}"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        unpack(Path(name))
        patch.setattr("bricks.session.workspace.fingerprint", here)
        patch.setattr("bricks.system.fingerprint", here)
        made = dict(record(run, Path(name)))
    SAID.write_bytes(lzma.compress(json.dumps(made).encode()))
