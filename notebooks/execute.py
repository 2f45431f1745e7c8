"""Run the notebooks from top to bottom, and keep what they show.

    make notebooks                                         all of them, in place
    .venv/bin/python notebooks/execute.py NOTEBOOK.ipynb …

Each runs in a kernel and in a folder of its own. What is kept are sources and outputs, and which
sources the outputs are of; nothing that tells when or where it ran, nor who ran it. Latencies are
real: run nothing else meanwhile. A notebook that fails, warns, or shows a path of this machine
stays as it was.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from traitlets.config import Config

NOTEBOOKS = Path(__file__).resolve().parent

# Seconds after which a cell is given up: others who measure on this host have their turn first.
PATIENCE_S = 600

_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
_PATH = re.compile(r"(?<![\w:/.~])~?/[\w.@-]+/[\w.@/-]*")

# What a kernel would otherwise take from whoever starts it.
_PERSONAL = ("BRICKS_", "MPLBACKEND", "MATPLOTLIBRC", "PYTHONSTARTUP")


class Refused(Exception):
    """Why the outputs of a notebook cannot be kept, in one line."""


def executed(notebook: NotebookNode) -> NotebookNode:
    """The notebook with the outputs of a run from top to bottom, in an empty folder.

    Raises :class:`Refused` where a cell fails, or says something on standard error.
    """
    fresh = nbformat.from_dict(notebook)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_PERSONAL)}
    # What they show must not depend on whether others published such a host.
    kept["BRICKS_PUBLISHED"] = os.devnull
    with tempfile.TemporaryDirectory(prefix="bricks-") as folder:
        # It is spoken to over sockets in that folder: no port is opened, and nothing is left.
        file = str(Path(folder) / "kernel.json")
        work = Path(folder) / "work"
        work.mkdir()
        client = NotebookClient(
            fresh,
            timeout=PATIENCE_S,
            kernel_name=_KERNEL["name"],
            resources={"metadata": {"path": str(work)}},
            record_timing=False,
            config=Config(KernelManager={"transport": "ipc", "connection_file": file}),
        )
        try:
            client.execute(env={**kept, "IPYTHONDIR": folder})
        except CellExecutionError as exc:
            raise Refused(f"a cell fails: {exc.ename}: {exc.evalue}") from exc
    for number, output in _outputs(fresh):
        if output.get("name") == "stderr":
            raise Refused(f"cell {number} warns: {output['text'].strip()}")
    return _cleaned(fresh)


def sources_digest(notebook: NotebookNode) -> str:
    """SHA-256 of all code, cell by cell: which sources outputs are of."""
    sources = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()


def told(notebook: NotebookNode) -> list[str]:
    """What outputs tell of the machine that they were made on: paths, and the host's name.

    A name that sources use as a word of their own tells nothing.
    """
    host = re.compile(rf"\b{re.escape(socket.gethostname())}\b")
    own = any(host.search(cell["source"]) for cell in notebook["cells"])
    found = []
    for _, output in _outputs(notebook):
        for text in _texts(output):
            found += _PATH.findall(text)
            found += [] if own else host.findall(text)
    return found


def _cleaned(notebook: NotebookNode) -> NotebookNode:
    """Sources and outputs, without what differs from run to run and says nothing."""
    notebook["metadata"] = nbformat.from_dict(
        {
            "bricks": {"sources_sha256": sources_digest(notebook)},
            "kernelspec": _KERNEL,
            "language_info": {"name": "python"},
        }
    )
    for cell in notebook["cells"]:
        cell["metadata"] = nbformat.from_dict({})
    for _, output in _outputs(notebook):
        data: dict[str, Any] = output.get("data", {})
        if len(data) > 1:  # a picture or formatted text: what it is called in Python says no more
            data.pop("text/plain", None)
        if "metadata" in output:
            output["metadata"] = nbformat.from_dict({})
    nbformat.validate(notebook)
    return notebook


def _outputs(notebook: NotebookNode) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, cell in enumerate(notebook["cells"], 1):
        for output in cell.get("outputs", ()):
            yield number, output


def _texts(output: Mapping[str, Any]) -> Iterator[str]:
    yield output.get("text", "")
    for kind, content in output.get("data", {}).items():
        if kind.startswith("text/"):
            yield content


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for, by default every notebook; 1 if one of them was refused."""
    parser = argparse.ArgumentParser(description="Run notebooks, and keep what they show.")
    every = sorted(NOTEBOOKS.glob("*.ipynb"))
    parser.add_argument("notebooks", nargs="*", type=Path, default=every, metavar="NOTEBOOK.ipynb")
    status = 0
    for path in parser.parse_args(arguments).notebooks:
        try:
            notebook = executed(nbformat.read(path, as_version=4))
            if telling := told(notebook):
                raise Refused(f"its outputs tell of this machine: {', '.join(telling)}")
        except Refused as exc:
            print(f"{path.name}: {exc}", file=sys.stderr)
            status = 1
        else:
            nbformat.write(notebook, path)
            print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
