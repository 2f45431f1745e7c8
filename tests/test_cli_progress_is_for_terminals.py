import os
import pty
import subprocess
from pathlib import Path

import pytest
from commands import COMMAND, environment
from factories import mlp, save


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    path = save(mlp(), tmp_path, "mlp.onnx")
    cache = str(tmp_path / "cache")
    return [*COMMAND, "measure", str(path), "--json", "--runtime", "fake", "--cache", cache]


def test_a_terminal_sees_progress_and_standard_output_stays_clean(words: list[str]) -> None:
    ours, theirs = pty.openpty()
    variables = environment(TERM="xterm", COLUMNS="100", BRICKS_FAKE_PACE="0.0005")
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=theirs, env=variables)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # how Linux says that the other side is closed
        pass
    os.close(ours)
    assert process.stdout is not None
    with process.stdout:
        out = process.stdout.read()
    assert process.wait(60) == 0
    text = shown.decode()
    assert "call overhead" in text
    assert "mlp" in text
    assert "0:00" in text  # the time left
    assert out.startswith(b"{")
    assert b"\x1b" not in out


def test_a_pipe_sees_nothing(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, env=environment())
    assert (done.returncode, done.stderr) == (0, "")
