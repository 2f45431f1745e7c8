import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from refusals import refused
from store_examples import make_decomposition, make_target, measure, open_with_target

from bricks.decompose.plan import Brick
from bricks.errors import CacheDamaged
from bricks.samples.measurement import Round
from bricks.store import Owner, Store

TARGET = make_target()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    owner, folder = Owner.current(), tmp_path_factory.mktemp("sound")
    with open_with_target(folder) as store:
        store.plans.save(make_decomposition((1, 2)), TARGET.key)
        measure(store, TARGET, ["b1-0001", "m1-whole", "p1-probe"])
        store.claims.claim(TARGET.key, ["b1-0002"], owner)
        store.claims.fail(TARGET.key, "b1-0002", "no memory", owner)
        assert store.contents.verify() == []
        assert store.contents.verify(lambda brick: brick.key) == []
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "cache")


def tamper(folder: Path, statement: str) -> list[str]:
    """Run ``statement`` behind the store's back; returns what verify then says."""
    with closing(sqlite3.connect(folder / "bricks.sqlite")) as connection, connection:
        connection.execute(statement)
    with Store.open(folder) as store:
        problems = store.contents.verify()
    assert all("\n" not in problem for problem in problems)
    return problems


def test_each_kind_of_tampering_is_found(sound: Path, tmp_path: Path) -> None:
    for number, (statement, problem) in enumerate((
        ("UPDATE systems SET identity = '{}'", "its identity does not give this key"),
        ("UPDATE systems SET identity = 'x'", "system s1-.* is damaged"),
        ("UPDATE targets SET runtime = '{}'", "target t1-.* is damaged"),
        (
            "UPDATE targets SET runtime = replace(runtime, '1.0', '1.1')",
            "its system and runtime do not give this key",
        ),
        ("UPDATE bricks SET key = 'x' WHERE key = 'b1-0002'", "brick x: its key does not start"),
        ("UPDATE bricks SET model = x''", "b1-0001: its model is empty"),
        ("UPDATE bricks SET weight_bytes = 7", "weights take 6 bytes, not 7"),
        ("UPDATE bricks SET weights = '[]'", "weights take 0 bytes, not 6"),
        ("UPDATE bricks SET flops = -1", "its flops are negative"),
        ("UPDATE bricks SET inputs = '[[1]]'", "brick b1-0001 is damaged"),
        ("UPDATE bricks SET operators = '{}'", "brick b1-0001 is damaged"),
        ("UPDATE plans SET plan = substr(plan, 1, 50)", "plan dddd.* is damaged"),
        ("UPDATE plans SET plan = '{}'", "plan dddd.* is damaged"),
        ("UPDATE plans SET digest = 'eeee'", "plan eeee .*its text is of dddd"),
        ("DELETE FROM bricks WHERE key = 'b1-0002'", "1 of its bricks are unknown, b1-0002 first"),
        ("DELETE FROM bricks WHERE key = 'b1-0001'", "measurement of b1-0001 .*brick is unknown"),
        ("UPDATE measurements SET state = 'odd'", "its state 'odd' is unknown"),
        ("UPDATE measurements SET reason = NULL", "b1-0002 .*failed without a reason"),
        ("DELETE FROM rounds", "b1-0001 .*finished and has no samples"),
        ("UPDATE rounds SET samples = '[0.0]'", "round 0 is damaged.*not a finite positive"),
        ("UPDATE rounds SET samples = '[-0.5]'", "not a finite positive"),
        ("UPDATE rounds SET samples = '[NaN]'", "not a finite positive"),
        ("UPDATE rounds SET samples = '[1e999]'", "not a finite positive"),
        ("UPDATE rounds SET samples = '[true]'", "not a finite positive"),
        ("UPDATE rounds SET samples = '[\"a\"]'", "not a finite positive"),
        ("UPDATE rounds SET samples = '0.5'", "round 0 is damaged.*not a list"),
        ("UPDATE rounds SET samples = '[0.5,0.5]'", "it has 2 samples, not 1"),
        ("UPDATE rounds SET measurement_id = 77 WHERE measurement_id = 1", "refers to a missing"),
        ("DELETE FROM systems", "row 1 of targets refers to a missing row of systems"),
    )):  # fmt: skip
        problems = tamper(shutil.copytree(sound, tmp_path / str(number)), statement)
        assert any(re.search(problem, line) for line in problems), (statement, problems)


def lose_a_round(folder: Path) -> list[str]:
    """Lose one of two rounds of b1-0001; returns what verify then says."""
    with Store.open(folder) as store:
        store.measurements.supplement(TARGET.key, {"b1-0001": (Round((0.5,)), 1.0)})
        assert store.contents.verify() == []
    return tamper(folder, "DELETE FROM rounds WHERE number = 1")


def test_a_lost_round_is_found_by_measurement(folder: Path) -> None:
    (problem,) = lose_a_round(folder)
    assert problem.startswith(f"measurement of b1-0001 on {TARGET.key}: ")


def test_a_measurement_that_lost_a_round_is_an_error_and_never_a_guess(folder: Path) -> None:
    lose_a_round(folder)
    with Store.open(folder) as store, refused(CacheDamaged, "b1-0001", 1, 2, "bricks cache verify"):
        store.measurements.results(TARGET.key, ["b1-0001"])


def test_a_damaged_page_is_found(tmp_path: Path) -> None:
    with open_with_target(tmp_path) as store:
        store.plans.save(make_decomposition(range(1, 200)), TARGET.key)
    file = tmp_path / "bricks.sqlite"
    content = bytearray(file.read_bytes())
    content[-4096:] = b"\xff" * 4096
    file.write_bytes(content)
    with Store.open(tmp_path) as store:
        assert any(line.startswith("database: ") for line in store.contents.verify())


def test_a_brick_whose_model_gives_another_key_is_found(folder: Path) -> None:
    def rekey(brick: Brick) -> str:
        if brick.key == "b1-0002":
            raise RuntimeError("cannot parse")
        return "b1-ffff"

    with Store.open(folder) as store:
        assert store.contents.verify(rekey) == [
            "brick b1-0001: its model gives the key b1-ffff",
            "brick b1-0002: its key cannot be recomputed (RuntimeError)",
        ]


def test_a_damaged_row_is_an_error_and_never_a_guess(sound: Path, tmp_path: Path) -> None:
    for number, (statement, named, read) in enumerate((
        ("UPDATE plans SET plan = 'x'", "net.onnx",
         lambda s: s.plans.load("d" * 64, "executed", TARGET.key, name="net.onnx")),
        ("UPDATE bricks SET inputs = 'x'", "b1-0001", lambda s: s.plans.load_bricks(["b1-0001"])),
        ("UPDATE systems SET recorded = '[]'", TARGET.key, lambda s: s.systems.targets()),
        ("UPDATE rounds SET samples = '[0]'", "b1-0001",
         lambda s: s.measurements.results(TARGET.key, ["b1-0001"])),
    )):  # fmt: skip
        folder = shutil.copytree(sound, tmp_path / str(number))
        tamper(folder, statement)
        with Store.open(folder) as store, refused(CacheDamaged, named, "bricks cache verify"):
            read(store)
