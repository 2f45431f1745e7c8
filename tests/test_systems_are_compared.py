"""``bricks systems diff``: which facts make two systems two, and which are recorded besides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from commands import Here
from factories import mlp, save

import bricks.bench
from bricks.system import System, fingerprint

HOME = fingerprint()
THERE = replace(
    HOME,
    name="there",
    identity={**HOME.identity, "logical_cpus": 97, "cpu": "Other [bold]CPU"},
    recorded={**HOME.recorded, "kernel": "9.9"},
)
UPDATED = replace(HOME, recorded={**HOME.recorded, "kernel": "9.9"})


@pytest.fixture
def two(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    """A cache that knows two systems."""
    model = save(mlp(), tmp_path, "mlp.onnx")
    for system in (HOME, THERE):
        monkeypatch.setattr(bricks.bench, "fingerprint", lambda system=system: system)
        assert here("measure", model).status == 0
    monkeypatch.undo()
    return here


def test_the_facts_that_differ_are_told(two: Here) -> None:
    found = two("systems", "diff", "there", HOME.name, "--json", runtime=None).json
    assert (found["one"]["name"], found["other"]["name"]) == ("there", HOME.name)
    assert found["differences"] == {
        "identity": {
            "cpu": ["Other [bold]CPU", HOME.identity["cpu"]],
            "logical_cpus": [97, HOME.identity["logical_cpus"]],
        },
        "recorded": {"kernel": ["9.9", HOME.recorded["kernel"]]},
    }
    shown = two("systems", "diff", "there", HOME.name, runtime=None).out
    assert f"there and {HOME.name} are two systems" in shown
    assert "Other [bold]CPU" in shown
    assert "architecture" not in shown


def test_by_itself_a_system_is_compared_with_this_host(two: Here) -> None:
    alone = two("systems", "diff", "there", "--json", runtime=None).json
    both = two("systems", "diff", "there", HOME.name, "--json", runtime=None).json
    assert alone == both
    same = two("systems", "diff", HOME.name, runtime=None)
    assert (
        same.out == f"{HOME.key} and this host are one system: measurements of both count for it.\n"
    )


def test_what_is_only_recorded_makes_no_other_system(
    two: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bricks.system.fingerprint", lambda: UPDATED)
    shown = two("systems", "diff", HOME.name, runtime=None).out
    assert "are one system" in shown
    assert "What is recorded besides:" in shown
    assert "9.9" in shown


def test_facts_that_one_lacks_are_none_there() -> None:
    one, other = System("a", {"x": 1, "y": 2}, {}), System("b", {"y": 2, "z": [3]}, {"k": "v"})
    assert one.differences(other) == {
        "identity": {"x": (1, None), "z": (None, [3])},
        "recorded": {"k": (None, "v")},
    }
    assert one.differences(one) == {"identity": {}, "recorded": {}}


def test_a_name_that_is_mistyped_is_answered(two: Here, here: Here, tmp_path: Path) -> None:
    done = two("systems", "diff", "ther", runtime=None)
    assert (done.status, done.out) == (2, "")
    assert f"is called 'ther'; it knows: {HOME.name}, there" in done.complaint
    nowhere = here.plain("systems", "diff", "there", "--cache", tmp_path / "none")
    assert nowhere.status == 1
    assert "there is no cache in" in nowhere.complaint
    assert not (tmp_path / "none").exists()


def test_systems_alone_still_lists_them(two: Here) -> None:
    listed = two("systems", "--json", runtime=None).json
    assert {system["name"] for system in listed["systems"]} == {HOME.name, "there"}
