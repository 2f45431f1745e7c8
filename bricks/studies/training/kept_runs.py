"""Stored trainings: a checkpoint and the measured epochs of each, in a folder.

A worker resumes from a checkpoint, which holds the epochs until then; the JSON file next to it has
the same epochs for programs and people. Files are written whole or not at all. Must not know what
an epoch means.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bricks.backends.programs import TrainedEpoch
from bricks.errors import StoreError

_FORMAT = 1
_DIGITS = 16


def folder_of(parent: Path, *parts: str) -> Path:
    """Make the folder of a program in ``parent``, whose name is the digest of ``parts``."""
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    folder = (parent / digest[:_DIGITS]).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise _unwritable(folder, exc) from exc
    return folder


class KeptRun:
    """The files of one training with a seed and an identity, which the worker computes."""

    def __init__(self, folder: Path, seed: int, identity: str) -> None:
        stem = folder / f"seed-{seed}-{identity[:_DIGITS]}"
        self.checkpoint = stem.with_suffix(".pt")
        self._facts = stem.with_suffix(".json")

    def epochs(self) -> list[TrainedEpoch]:
        """The measured epochs; empty unless the training is stored."""
        facts = read_facts(self._facts)
        return [] if facts is None else list(map(TrainedEpoch.from_json, facts["epochs"]))

    def write(self, epochs: Sequence[TrainedEpoch]) -> None:
        """Store these epochs."""
        write_facts(self._facts, {"epochs": [asdict(epoch) for epoch in epochs]})

    def forget(self) -> None:
        """Remove the files."""
        for path in (self._facts, self.checkpoint):
            path.unlink(missing_ok=True)


def read_facts(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None without the file. :class:`StoreError` for a damaged one."""
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if facts["format"] != _FORMAT:
            raise ValueError("another format")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise StoreError(f"{path} cannot be read ({exc}): remove it, or train --again") from exc
    return facts


def write_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Write a file, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps({"format": _FORMAT, **facts}) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as exc:
        temporary.unlink(missing_ok=True)
        raise _unwritable(path, exc) from exc


def _unwritable(path: Path, exc: OSError) -> StoreError:
    return StoreError(f"{path} cannot be written ({exc.strerror}): give another --folder")
