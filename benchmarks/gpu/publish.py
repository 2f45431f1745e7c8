"""Writes what was measured on GPUs as published measurements.

``python -m benchmarks.gpu.publish`` writes a results file for each card into ``cache/published``,
next to those of processors: programs with their plans, kernels of all calls, steps of whole
programs, and costs of launching. Beside each, it writes a file of what is learned from it.
"""

from __future__ import annotations

import hashlib
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

from benchmarks.gpu.measured import MeasuredProgram, measured
from benchmarks.gpu.raw import Nulls, RawFile, RawProgram, read
from benchmarks.study import ROOT
from bricks import __version__
from bricks.analysis.publishing import with_learned_file
from bricks.graph.model import Model
from bricks.samples.call_overhead import DEVICE_PROBES
from bricks.samples.measurement import Round
from bricks.sources import ReadOptions
from bricks.sources import read as read_source
from bricks.store import Owner, Store
from bricks.store.published_index import IndexEntry, read_index, write_index
from bricks.system.accelerator import ACCELERATOR, Accelerator
from bricks.system.target import Runtime, System, Target

PLACE = ROOT / "cache" / "published"
DATE = "2026-11-27"

# Significant digits of samples.
_DIGITS = 4

# What the raw files say of each card, and where: the driver's limits of power and clocks.
_CARDS: Mapping[str, Accelerator] = {
    "h100": Accelerator(
        "NVIDIA H100 80GB HBM3", 81079 << 20, 50 << 20, 132, "9.0", 1.98e9, 2.619e9, 700.0
    ),
    "h200": Accelerator("NVIDIA H200", 143155 << 20, 60 << 20, 132, "9.0", 1.98e9, 3.201e9, 700.0),
}
_FILES: Mapping[str, tuple[str, ...]] = {
    "h100": ("h100-walks",),
    "h200": ("h200-walks", "h200-turns"),
}


def system_of(card: str) -> System:
    """The system of a card: a virtual machine of 16 processors, whose kind is not known."""
    accelerator = _CARDS[card]
    identity = {
        "cpu": None, "physical_cores": None, "logical_cpus": 16, "cpu_quota": None,
        "architecture": "x86_64", "os": "Linux", ACCELERATOR: accelerator.to_json(),
    }  # fmt: skip
    recorded = {"driver": "580", "hypervisor": True}
    return System("-".join(accelerator.name.lower().split()), identity, recorded)


def target_of(file: RawFile) -> Target:
    """PyTorch on the card of ``file``."""
    card = file.session.partition("-")[0]
    return Target(system_of(card), Runtime("torch", file.versions["torch"], "CUDA", 1, "none"))


def program_name(program: RawProgram) -> str:
    """The name of a program; those of the zoo have the names that they have there."""
    name = program.name
    return f"torch_{name.removeprefix('zoo_')}" if name.startswith("zoo_") else name


@dataclass(frozen=True, slots=True)
class CardResults:
    """All that is published of a card: programs, and the rounds of each key."""

    target: Target
    programs: tuple[MeasuredProgram, ...]
    rounds: Mapping[str, tuple[Round, ...]]


def results_of(card: str) -> CardResults:
    """The programs and measurements of ``card`` in all raw files."""
    files = [read(session) for session in _FILES[card]]
    programs, rounds = list[MeasuredProgram](), defaultdict[str, list[Round]](list)
    with TemporaryDirectory() as folder:
        for file in files:
            for program in file.programs:
                own = measured(program, _model(program, Path(folder)))
                programs.append(own)
                for key, measurement in own.measured.items():
                    rounds[key] += measurement.rounds
                rounds[own.plan.digest] += _steps(program)
            for key, round_ in _probes(file.nulls):
                rounds[key].append(round_)
    return CardResults(
        target_of(files[0]), tuple(programs), {key: tuple(of) for key, of in rounds.items()}
    )


def _model(program: RawProgram, folder: Path) -> Model:
    """The program as it is read from a file."""
    path = folder / f"{program_name(program)}.onnx"
    onnx.save(program.proto, str(path))
    model = read_source(str(path), ReadOptions(granularity="executed", runtime="torch"))
    return replace(model, name=program_name(program))


def _steps(program: RawProgram) -> Iterator[Round]:
    """Real steps one by one, a round for each time at which they were sampled."""
    for turn in program.turns:
        yield Round(turn.latency_s)
    if not program.turns:
        yield Round(program.latency_s)


def _probes(nulls: Iterable[Nulls]) -> Iterator[tuple[str, Round]]:
    for of in nulls:
        samples = {
            "gap": of.gap_s, "kernel": of.null_s, "launch": of.launch_to_start_s,
            "round trip": of.round_trip_s, "synchronise": of.sync_s,
        }  # fmt: skip
        for name, taken_s in samples.items():
            yield DEVICE_PROBES[name], Round(taken_s)


def publish(card: str, place: Path = PLACE) -> IndexEntry:
    """Write the results of ``card``, what is learned from them, and their entry of the index."""
    results = results_of(card)
    target = results.target
    name = f"{target.system.name}.jsonl.xz"
    with TemporaryDirectory() as folder, Store.open(Path(folder) / "cache") as store:
        _fill(store, results)
        store.contents.export(place / name, [target.key], package=__version__, digits=_DIGITS)
    digest = hashlib.sha256((place / name).read_bytes()).hexdigest()
    entry = IndexEntry(name, digest, (target,), {"targets": {target.key: _about(results)}})
    others = [of for of in read_index(place) if of.file != name]
    write_index(place, [*others, entry])
    entry = with_learned_file(entry, place)
    write_index(place, [*others, entry])
    return entry


def _fill(store: Store, results: CardResults) -> None:
    target, owner = results.target, Owner.current()
    store.systems.save_target(target)
    for program in results.programs:
        store.plans.save(program.decomposition, target.key)
    store.claims.claim(target.key, list(results.rounds), owner)
    for number in range(max(map(len, results.rounds.values()))):
        walk = {k: (of[number], 0.0) for k, of in results.rounds.items() if number < len(of)}
        store.claims.append_rounds(target.key, walk, owner)
    store.claims.finish(target.key, list(results.rounds), owner)


def _about(results: CardResults) -> dict[str, Any]:
    """Facts for the page of published measurements."""
    models = {of.plan.digest for of in results.programs}
    return {
        "models": len(models),
        "bricks": len({key for of in results.programs for key in of.measured}),
        "rounds": sum(map(len, results.rounds.values())),
        "date": DATE,
        "package": __version__,
    }


if __name__ == "__main__":
    for each in sys.argv[1:] or _CARDS:
        print(publish(each).file)
