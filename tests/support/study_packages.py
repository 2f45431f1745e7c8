"""Packages with studies of their own, as an installation would leave them."""

from __future__ import annotations

import os
from pathlib import Path

from commands import ROOT

SUPPORT = ROOT / "tests" / "support"


def installed(folder: Path, **entry_points: str) -> dict[str, str]:
    """The environment of processes in which a package with these entry points is installed."""
    about = folder / "energy_study-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: energy-study\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entry_points.items()]
    (about / "entry_points.txt").write_text("\n".join(["[bricks.studies]", *lines]) + "\n")
    return {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, SUPPORT, folder)))}
