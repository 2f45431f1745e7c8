"""An older ONNX Runtime, for tests of what differs between two versions."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).resolve().parent / "older_onnxruntime.lock"
(VERSION,) = re.findall(r"^onnxruntime==(\S+)", LOCK.read_text("utf-8"), re.M)

PATIENCE_S = 300.0


class NotInstallable(Exception):
    """It cannot be had here, and why."""


def install(folder: Path) -> Path:
    """Install it into ``folder``, alone: what it needs is what the newer one needs.

    Whoever has the folder on the path before all else gets this version.
    """
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    words = ["install", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-compile"]
    command = [*pip, *words, "--retries", "0", "--target", str(folder), "-r", str(LOCK)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        raise NotInstallable(f"pip took longer than {PATIENCE_S:g} seconds") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstallable(lines[-1] if lines else f"pip ended with status {done.returncode}")
    return folder
