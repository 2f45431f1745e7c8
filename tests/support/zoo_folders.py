"""Models that the zoo has, and folders in place of it."""

from __future__ import annotations

from pathlib import Path

import pytest

CLASSIFIERS = [
    "alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
]


def zoo_at(monkeypatch: pytest.MonkeyPatch, folder: Path, manifest: str) -> None:
    (folder / "manifest.json").write_text(manifest)
    monkeypatch.setenv("BRICKS_ZOO", str(folder))
