"""Packages with studies of their own, as an installation would leave them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import ROOT

from bricks.cli import main

SUPPORT = ROOT / "tests" / "support"


def installed(folder: Path, **entry_points: str) -> dict[str, str]:
    """The environment of processes in which a package with these entry points is installed."""
    about = folder / "energy_study-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: energy-study\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entry_points.items()]
    (about / "entry_points.txt").write_text("\n".join(["[bricks.studies]", *lines]) + "\n")
    return {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, SUPPORT, folder)))}


@contextmanager
def installed_here(folder: Path, **entry_points: str) -> Iterator[None]:
    """Such a package, installed for the commands of this process meanwhile."""
    installed(folder, **entry_points)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        main.root_command.cache_clear()  # it keeps the commands that it has looked up
        try:
            yield
        finally:
            main.root_command.cache_clear()
