"""What is kept of trainings: a checkpoint and the measured epochs of each, in a folder.

A checkpoint is what a worker goes on from, and holds the epochs until then; the file of JSON beside
it says the same to programs and people. Files are written whole or not at all. Must not know what
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
    """The folder of a program in ``parent``, by digests of what it is; it is made if need be."""
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    folder = (parent / digest[:_DIGITS]).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise _unwritable(folder, exc) from exc
    return folder


class KeptRun:
    """The files of one run: of a seed and an identity, which the worker tells."""

    def __init__(self, folder: Path, seed: int, identity: str) -> None:
        stem = folder / f"seed-{seed}-{identity[:_DIGITS]}"
        self.checkpoint = stem.with_suffix(".pt")
        self._facts = stem.with_suffix(".json")

    def epochs(self) -> list[TrainedEpoch]:
        """The epochs that were measured; none where nothing is kept."""
        found = read_facts(self._facts)
        return [] if found is None else list(map(TrainedEpoch.from_json, found["epochs"]))

    def write(self, epochs: Sequence[TrainedEpoch]) -> None:
        """Keep these epochs."""
        write_facts(self._facts, {"epochs": [asdict(epoch) for epoch in epochs]})

    def forget(self) -> None:
        """Begin anew."""
        for path in (self._facts, self.checkpoint):
            path.unlink(missing_ok=True)


def read_facts(path: Path) -> dict[str, Any] | None:
    """What a file holds; None if there is none. :class:`StoreError` for a damaged one."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != _FORMAT:
            raise ValueError("another format")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise StoreError(f"{path} cannot be read ({exc}): remove it, or train --again") from exc
    return found


def write_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Write a file, whole or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(json.dumps({"format": _FORMAT, **facts}) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as exc:
        beside.unlink(missing_ok=True)
        raise _unwritable(path, exc) from exc


def _unwritable(path: Path, exc: OSError) -> StoreError:
    return StoreError(f"{path} cannot be written ({exc.strerror}): give another --folder")
