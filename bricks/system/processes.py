"""Names of other processes of this host, for people. Must not know why somebody asks."""

from __future__ import annotations

from pathlib import Path

from bricks.errors import printable

_MAX_COMMAND = 60


def process_name(pid: int) -> str:
    """``process 1234 (bricks predict resnet50)``; without the command where it is not known.

    Options of the command are left out: a line of a log must not tell a password.
    """
    command = _command(pid)
    return f"process {pid} ({command})" if command else f"process {pid}"


def _command(pid: int) -> str:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:  # it has ended, or belongs to another user, or the platform has no /proc
        return ""
    words = line.split("\0")[:-1]
    names = [Path(word).name for word in words]
    begin = names.index("bricks") if "bricks" in names else 0
    # Anything after an option may be its value.
    options = (n for n, word in enumerate(words) if n > begin and word.startswith("-"))
    shown = [*names[begin : begin + 1], *words[begin + 1 : next(options, len(words))]]
    return printable(" ".join(shown))[:_MAX_COMMAND]
