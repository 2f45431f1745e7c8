"""What tests of hostile models share."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from bricks.errors import ModelError
from bricks.reading.read import read_model


def peak_bytes(pid: int) -> int:
    """The most memory that a process has ever held; 0 where nothing tells."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if "VmHWM" in line)
    return 0


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        read_model(path)
    return str(caught.value)
