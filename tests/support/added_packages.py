"""Packages of others, as pip would install them, for this process and its workers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def make_site(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages."""
    site = folder / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    paths = filter(None, (str(site), os.environ.get("PYTHONPATH")))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return site


def install_offer(site: Path, module: str, name: str, attribute: str = "OFFER") -> None:
    """What says that ``module`` is installed, and offers the runtime called ``name``."""
    facts = site / f"{module}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    points = f"[bricks.backends]\n{name} = {module}:{attribute}\n"
    (facts / "entry_points.txt").write_text(points)
