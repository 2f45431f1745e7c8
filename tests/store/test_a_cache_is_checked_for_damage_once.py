"""The whole file is read to find damage once, however often its results are about to be used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import chain
from factories import save
from refusals import refused
from store_examples import make_decomposition, make_target, open_with_target

import bricks
from bricks.errors import CacheDamaged
from bricks.session import adaptive
from bricks.store import Store, audit, database, database_file

OPERATORS = (
    "Relu", "Sigmoid", "Tanh", "Exp", "Neg", "Abs", "Sqrt", "Erf", "Floor", "Ceil", "Sin", "Cos",
    "Softplus", "Softsign", "Elu", "Selu", "Round", "Reciprocal", "Sign", "Log",
)  # fmt: skip


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The checks of a whole file that SQLite is asked for."""
    asked: list[str] = []
    problems = database_file.integrity_problems

    def noted(view: Any) -> Iterator[str]:
        asked.append("integrity_check")
        return problems(view)

    for module in (database, audit):
        monkeypatch.setattr(module, "integrity_problems", noted)
    return asked


@pytest.mark.slow
def test_all_stages_of_an_adaptive_measurement_check_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checks: list[str]
) -> None:
    monkeypatch.setattr(adaptive, "SOON_S", 0.0)  # few small bricks: they are planned all the same
    paths = [save(chain(*OPERATORS, width=64 + i), tmp_path, f"{i}.onnx") for i in range(16)]
    known: set[str] = set()

    def progress(what: str, share: float) -> None:
        if what.startswith("models known to ± "):
            known.add(what.partition("%")[0])

    with bricks.Bench(
        tmp_path / "cache", runtime="fake", effort="balanced", progress=progress
    ) as bench:
        bench.measure([bench.read(path) for path in paths])
        assert len(known) > 1, "it takes several stages"
        assert len(checks) == 1
        bench.predict(bench.read(paths[0]))
        bench.store.contents.stats()
    assert len(checks) == 1


def test_a_cache_is_checked_again_when_it_is_opened_again(
    tmp_path: Path, checks: list[str]
) -> None:
    for opened in (1, 2):
        with open_with_target(tmp_path) as store:
            store.refuse_damage()
            store.refuse_damage()
        assert len(checks) == opened


def test_verify_always_checks(tmp_path: Path, checks: list[str]) -> None:
    with open_with_target(tmp_path) as store:
        store.refuse_damage()
        assert store.contents.verify() == store.contents.verify() == []
    assert len(checks) == 3


def test_a_damaged_cache_is_refused_every_time(tmp_path: Path) -> None:
    with open_with_target(tmp_path) as store:
        store.plans.save(make_decomposition(range(1, 200)), make_target().key)
    file = tmp_path / "bricks.sqlite"
    file.write_bytes(file.read_bytes()[:-4096] + b"\xff" * 4096)
    with Store.open(tmp_path) as store:
        for ask in (store.refuse_damage, store.refuse_damage, store.contents.stats):
            with refused(CacheDamaged, file, "bricks cache verify"):
                ask()
