"""``bricks systems``: what makes two systems two, what they are called, and what they cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from commands import Here
from factories import mlp, save
from systems import copied, measure_on

from bricks.system import System, fingerprint

HOME = fingerprint()
THERE = replace(
    HOME,
    name="there",
    identity={**HOME.identity, "logical_cpus": 97, "cpu": "Other [bold]CPU"},
    recorded={**HOME.recorded, "kernel": "9.9"},
)
UPDATED = replace(HOME, recorded={**HOME.recorded, "kernel": "9.9"})


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that knows two systems."""
    folder = tmp_path_factory.mktemp("two")
    model = save(mlp(), folder, "mlp.onnx")
    for system in (HOME, THERE):
        measure_on(system, folder / "cache", [model])
    return folder / "cache"


@pytest.fixture
def two(here: Here, known: Path) -> Here:
    return copied(known, here)


def test_the_facts_that_differ_are_told(two: Here) -> None:
    facts = two("systems", "diff", "there", HOME.name, "--json", runtime=None).json
    assert (facts["one"]["name"], facts["other"]["name"]) == ("there", HOME.name)
    assert facts["differences"] == {
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
    done = two("systems", "diff", "thare", runtime=None)
    assert (done.status, done.out) == (2, "")
    assert "no thare among the known systems (" in done.complaint
    assert done.complaint.endswith(": did you mean there?")
    nowhere = here.plain("systems", "diff", "there", "--cache", tmp_path / "none")
    assert nowhere.status == 1
    assert "there is no cache in" in nowhere.complaint
    assert not (tmp_path / "none").exists()


def test_systems_alone_still_lists_them(two: Here) -> None:
    listed = two("systems", "--json", runtime=None).json
    assert {system["name"] for system in listed["systems"]} == {HOME.name, "there"}


def test_a_name_and_a_price_stay_whatever_is_measured(two: Here, tmp_path: Path) -> None:
    done = two("systems", "set", HOME.name, "--name", "home", "--price", 0.25, runtime=None)
    assert (done.status, done.out) == (0, f"{HOME.key} is called home, 0.25 an hour.\n")
    measured = two("measure", save(mlp(seed=3), tmp_path, "other.onnx"), "--json").json
    assert measured["system"]["name"] == "home"
    assert measured["system"]["key"] == HOME.key
    listed = two("systems", "--json", runtime=None).json
    assert listed["this_host"]["name"] == "home"
    known = {s["name"]: s for s in listed["systems"]}
    assert known["home"]["price_per_hour"] == 0.25
    assert "price_per_hour" not in known["there"]
    assert two("systems", "set", "home", "--price", 0.5, "--json", runtime=None).json == {
        **HOME.to_json(), "name": "home", "price_per_hour": 0.5,
    }  # fmt: skip
    assert "home (" in two("systems", runtime=None).out
    assert two("cache", "verify", runtime=None).status == 0


def test_names_and_prices_travel_with_results(
    two: Here, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two("systems", "set", "there", "--name", "big box", "--price", 3, runtime=None)
    file, other = tmp_path / "results.jsonl", Here(tmp_path / "other", capsys)
    assert two("cache", "export", file, "--on", "big box", runtime=None).status == 0
    assert other("cache", "import", file, runtime=None).status == 0
    (known,) = other("systems", "--json", runtime=None).json["systems"]
    assert (known["name"], known["price_per_hour"], known["key"]) == ("big box", 3.0, THERE.key)
    other("systems", "set", "big box", "--price", 4, runtime=None)
    assert other("cache", "import", file, runtime=None).status == 0
    (known,) = other("systems", "--json", runtime=None).json["systems"]
    assert known["price_per_hour"] == 4.0  # what was said here stays


def test_what_cannot_be_meant_is_refused(two: Here) -> None:
    before = two("systems", "--json", runtime=None).json
    for words, status, problem in (
        ((), 2, "nothing is to be set: give --name, --price or both"),
        (("--name", "there"), 1, "is called 'there' already: give another name"),
        (("--name", " "), 2, "' ' is no name"),
        (("--name", "a\x1b[0m"), 2, "is no name"),
        (("--price", "-1"), 2, "at least 0 is needed"),
        (("--price", "nan"), 2, "at least 0 is needed"),
        (("--price", "inf"), 2, "the price inf cannot be paid"),
    ):
        done = two("systems", "set", HOME.name, *words, runtime=None)
        assert (done.status, done.out) == (status, ""), words
        assert problem in done.complaint, words
    assert two("systems", "--json", runtime=None).json == before
