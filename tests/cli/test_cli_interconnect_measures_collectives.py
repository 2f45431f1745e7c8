"""``bricks interconnect``: measured once, listed, shown, exported, and refused in one line."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from commands import CommandResult, Here

from bricks.system.network import NetworkFingerprint

Measure = Callable[..., CommandResult]


@pytest.fixture
def measure(here: Here) -> Measure:
    """Measures a network of the fake backend."""

    def measure(name: str, *words: object) -> CommandResult:
        options = ("--backend", "fake", "--cache", here.cache, "--max-bytes", 70_000)
        return here.plain("interconnect", "measure", name, *options, *words)

    return measure


def json_of(done: CommandResult) -> Any:
    assert (done.status, done.err) == (0, "")
    return done.json


def test_a_network_is_measured_once_and_shown(here: Here, measure: Measure) -> None:
    first = json_of(measure("lab", "--computing", "--json"))
    assert len(first["new"]) == 4 * 4 * 4 and first["known"] == first["left_out"] == []
    again = json_of(measure("lab", "--computing", "--json"))
    assert again["new"] == [] and again["known"] == first["new"]
    listed = json_of(here.plain("interconnect", "list", "--json", "--cache", here.cache))[
        "networks"
    ]
    assert [(each["name"], each["ranks"], each["series"]) for each in listed] == [("lab", [2], 64)]
    assert listed[0]["identity"]["kind"] == "loopback"
    shown = json_of(here.plain("interconnect", "show", "lab", "--json", "--cache", here.cache))
    assert shown == {name: first[name] for name in shown}
    for fit in shown["fits"]:
        assert all(abs(point["residual"]) < 0.02 for point in fit["points"])
    assert shown["slowdowns"][0]["ratio"] == pytest.approx(2.0, rel=0.02)
    told = here.plain("interconnect", "show", "lab", "--cache", here.cache)
    assert "all-reduce, computing" in told.out and "2.00 times as long" in told.out
    assert "lab" in here.plain("interconnect", "list", "--cache", here.cache).out


def test_a_network_travels_with_what_was_measured_on_it(
    here: Here, measure: Measure, tmp_path: Path
) -> None:
    json_of(measure("lab", "--operation", "all_reduce", "--json"))
    file, other = tmp_path / "results.jsonl", tmp_path / "other"
    json_of(here.plain("cache", "export", file, "--json", "--cache", here.cache))
    new = json_of(here.plain("cache", "import", file, "--json", "--cache", other))
    assert (new["networks"], new["targets"], new["measurements"]) == (1, 1, 4)
    again = json_of(here.plain("cache", "import", file, "--json", "--cache", other))
    assert (again["networks"], again["rounds"], again["known"]) == (0, 0, 4)
    one, two = (
        json_of(here.plain("interconnect", "show", "lab", "--json", "--cache", cache))
        for cache in (here.cache, other)
    )
    assert one == two
    # Targets of networks run no models: no other command takes them for such.
    systems = json_of(here.plain("systems", "--json", "--cache", other))["systems"]
    assert [system["runtimes"] for system in systems] == [[]]


def test_a_network_that_was_altered_is_noticed(here: Here, measure: Measure) -> None:
    json_of(measure("lab", "--operation", "broadcast", "--json"))
    with closing(sqlite3.connect(here.cache / "bricks.sqlite")) as connection, connection:
        connection.execute("UPDATE networks SET identity = replace(identity, '65536', '1500')")
    done = here.plain("cache", "verify", "--cache", here.cache)
    assert done.status == 1 and "its identity does not give this key" in done.err
    with closing(sqlite3.connect(here.cache / "bricks.sqlite")) as connection, connection:
        connection.execute("DELETE FROM networks")
    done = here.plain("cache", "verify", "--cache", here.cache)
    assert done.status == 1 and "is unknown" in done.err
    done = here.plain("interconnect", "list", "--cache", here.cache)
    assert done.status == 1 and "bricks cache verify" in done.complaint


def test_a_name_stands_for_one_network(here: Here, measure: Measure) -> None:
    json_of(measure("lab", "--operation", "broadcast", "--json"))
    done = measure("other", "--operation", "broadcast")
    assert done.status == 2 and "'lab'" in done.complaint
    assert "'bricks interconnect measure lab'" in done.complaint and "--again" in done.complaint
    with closing(sqlite3.connect(here.cache / "bricks.sqlite")) as connection, connection:
        key = NetworkFingerprint("there", {}).key
        change = "UPDATE networks SET name = 'there', key = ?, identity = '{}'"
        connection.execute(change, (key,))
        change = "UPDATE targets SET runtime = json_set(runtime, '$.network', ?)"
        connection.execute(change, (key,))
    done = measure("there", "--operation", "broadcast")
    assert done.status == 2 and "another network is called 'there'" in done.complaint


def test_further_rounds_are_measured_where_they_are_asked_for(measure: Measure) -> None:
    words = ("lab", "--operation", "all-reduce", "--computing")
    first = json_of(measure(*words, "--json"))
    assert first["again"] == []
    told = measure(*words)
    assert told.status == 0
    assert "all 16 series were known" in told.out and "--again" in told.out
    more = json_of(measure(*words, "--again", "--json"))
    assert (more["new"], more["again"]) == ([], first["new"])
    counts = [{p["num_bytes"]: p["rounds"] for p in f["points"]} for f in first["fits"]]
    for fit, before in zip(more["fits"], counts, strict=True):
        assert all(point["rounds"] >= before[point["num_bytes"]] + 8 for point in fit["points"])
    wider = json_of(measure("lab", "--again", "--json"))
    assert set(wider["again"]) < set(first["new"]) and len(wider["new"]) == 3 * 4


@pytest.mark.parametrize("written", ["reduce-scatter", "reduce_scatter", "Reduce-Scatter"])
def test_operations_are_taken_as_they_are_printed(measure: Measure, written: str) -> None:
    done = json_of(measure("lab", "--operation", written, "--json"))
    assert done["operations"] == ["reduce_scatter"]


def test_what_cannot_be_measured_is_one_line(here: Here, tmp_path: Path) -> None:
    for line, status, *facts in (
        ("show lab", 1, str(tmp_path / "none")),
        ("measure lab --backend nccl", 1, "nccl"),
        ("measure lab --backend mpi", 2, "'mpi'"),
        ("measure lab --operation gather", 2, "did you mean all-gather?"),
        ("measure lab --operation shuffle", 2, "all-reduce, broadcast, all-gather, reduce-scatter"),
        ("measure lab --ranks 65", 2, "65 ranks"),
        ("measure lab --bandwidth fast", 2, "'fast'"),
        ("measure lab --loopback --bandwidth 1Gbit", 2, "--loopback", "--bandwidth"),
        ("measure lab --scheduler there", 2, "'there'"),
    ):
        done = here.plain("interconnect", *line.split(), "--cache", tmp_path / "none")
        assert done.status == status, line
        assert all(fact in done.complaint for fact in facts), done.complaint
    assert here.plain("interconnect", "measure", " ", "--cache", tmp_path / "none").status == 2


def test_an_unknown_network_is_one_line(here: Here, measure: Measure) -> None:
    assert json_of(here.plain("interconnect", "list", "--json", "--cache", here.cache)) == {
        "networks": []
    }
    json_of(measure("lab", "--operation", "broadcast", "--json"))
    done = here.plain("interconnect", "show", "lap", "--cache", here.cache)
    assert done.status == 2 and "did you mean lab?" in done.complaint
