"""What one cache exports, another takes in: all of it once, and nothing that cannot be true."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import CommandResult, Here
from factories import conv_net, mlp, save

import bricks.session.workspace
from bricks.api.bench import Bench
from bricks.cli import main
from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.session.targets import short_names
from bricks.store import Owner, Store
from bricks.store import results_file as file_format
from bricks.system import fingerprint

Records = list[dict[str, Any]]


@pytest.fixture(scope="module")
def conv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(conv_net(), tmp_path_factory.mktemp("model"), "conv.onnx")


@pytest.fixture(scope="module")
def known(conv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which that model is measured."""
    folder = tmp_path_factory.mktemp("known")
    assert main.run(["measure", f"{conv}", "--runtime", "fake", "--cache", f"{folder}"]) == 0
    return folder


@pytest.fixture
def there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Here:
    """Another cache, of the same host."""
    return Here(tmp_path / "there", capsys)


@pytest.fixture
def results(here: Here, known: Path, tmp_path: Path) -> Path:
    """What was measured of one model, which this cache knows."""
    shutil.copytree(known, here.cache)
    path = tmp_path / "results.jsonl"
    exported(here, path)
    return path


def exported(here: Here, path: Path, *options: str) -> CommandResult:
    done = here("cache", "export", path, *options, runtime=None)
    assert (done.status, done.err) == (0, "")
    return done


def imported(here: Here, path: Path) -> dict[str, Any]:
    done = here("cache", "import", path, "--json", runtime=None)
    assert (done.status, done.err) == (0, "")
    counts: dict[str, Any] = done.json
    return counts


def sound(here: Here) -> bool:
    return here("cache", "verify", runtime=None).status == 0


def settled(path: Path) -> dict[tuple[str, str], list[Any]]:
    """The rounds of each measurement in a file, in no order."""
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    settled_records = [line["measurement"] for line in lines if "measurement" in line]
    return {(m["target"], m["brick"]): sorted(m["rounds"], key=repr) for m in settled_records}


def test_a_cache_that_takes_in_results_knows_all_that_was_measured(
    here: Here, there: Here, conv: Path, results: Path
) -> None:
    new = imported(there, results)
    assert (new["systems"], new["targets"], new["plans"]) == (1, 1, 1)
    assert new["measurements"] > new["bricks"] > 0  # the probes of the call overhead too
    assert sound(there)
    known = here("predict", conv, "--no-measure", "--json").json
    assert there("predict", conv, "--no-measure", "--json").json["models"] == known["models"]
    assert there("measure", conv, "--json").json["new_bricks"] == 0


def test_a_bench_predicts_from_what_it_has_taken_in(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    with Bench(tmp_path / "there", runtime="fake", threads=1) as there:
        there.measure([there.read(save(mlp(widths=range(8, 328, 8)), tmp_path, "known.onnx"))])
        there.store.contents.export(results, [there.target.key], package="0")
    with Bench(tmp_path / "here", runtime="fake", threads=1) as bench:
        model = bench.read(save(mlp(widths=(12, 20, 28)), tmp_path, "new.onnx"))
        assert isinstance(bench.predict(model, measure=False), IncompleteEstimate)
        assert bench.workspace.merge(results).measurements > 0
        assert isinstance(bench.predict(model, measure=False), Estimate)
        assert bench.workspace.merge(results).measurements == 0


def test_what_is_exported_again_has_the_same_bytes(
    there: Here, results: Path, tmp_path: Path
) -> None:
    imported(there, results)
    exported(there, tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == results.read_bytes()


def test_taking_in_twice_is_as_once(there: Here, results: Path) -> None:
    first = imported(there, results)
    before = there("cache", "stats", "--json", runtime=None).json
    second = imported(there, results)
    assert second["known"] == first["measurements"]
    assert not any(v for k, v in second.items() if k not in ("file", "known"))
    after = there("cache", "stats", "--json", runtime=None).json
    assert {**after, "size_bytes": 0} == {**before, "size_bytes": 0}
    assert "nothing new" in there("cache", "import", results, runtime=None).out


def test_of_what_both_have_measured_all_rounds_are_kept_in_either_order(
    here: Here, there: Here, conv: Path, results: Path, tmp_path: Path
) -> None:
    other = save(mlp(), tmp_path, "mlp.onnx")
    assert there("measure", conv, other, "--seed", 1).status == 0
    theirs, both, either = (tmp_path / f"{name}.jsonl" for name in ("theirs", "both", "either"))
    exported(there, theirs)
    mine, others = settled(results), settled(theirs)
    imported(here, theirs)
    imported(there, results)
    exported(here, both)
    exported(there, either)
    assert settled(both) == settled(either)
    for key, rounds in settled(both).items():
        expected = {json.dumps(r) for r in [*mine.get(key, []), *others.get(key, [])]}
        assert {json.dumps(r) for r in rounds} == expected
    assert sound(here) and sound(there)


def test_systems_are_never_mixed(
    here: Here, there: Here, conv: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = fingerprint()
    another = replace(mine, name="elsewhere", identity={**mine.identity, "logical_cpus": 97})
    monkeypatch.setattr(bricks.session.workspace, "fingerprint", lambda: another)
    assert there("measure", conv).status == 0
    before = results_of(there, conv)
    imported(there, results)
    assert results_of(there, conv) == before
    assert {s["name"] for s in there("systems", "--json", runtime=None).json["systems"]} >= {
        mine.name, "elsewhere",
    }  # fmt: skip
    at_home = there("predict", conv, "--on", mine.name, "--json").json["models"][0]
    monkeypatch.setattr(bricks.session.workspace, "fingerprint", lambda: mine)
    assert at_home == here("predict", conv, "--no-measure", "--json").json["models"][0]


def results_of(here: Here, model: Path) -> Any:
    with Bench(here.cache, runtime="fake") as bench:
        keys = bench.decompose(bench.read(model)).plan.keys
        return bench.store.measurements.results(bench.target.key, keys)


def test_one_system_alone_can_be_exported(
    there: Here, results: Path, tmp_path: Path, conv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(there, results)
    mine = fingerprint()
    another = replace(mine, name="elsewhere", identity={**mine.identity, "logical_cpus": 97})
    monkeypatch.setattr(bricks.session.workspace, "fingerprint", lambda: another)
    assert there("measure", conv).status == 0
    exported(there, tmp_path / "mine.jsonl", "--on", mine.name)
    assert (tmp_path / "mine.jsonl").read_bytes() == results.read_bytes()
    refused = there("cache", "export", tmp_path / "x.jsonl", "--on", "nowhere", runtime=None)
    assert refused.status == 2
    known = ", ".join(sorted(short_names(("elsewhere", mine.name)).values()))
    assert f"no nowhere among the known systems ({known})" in refused.complaint
    assert not (tmp_path / "x.jsonl").exists()


def test_what_was_measured_wins_over_what_failed(here: Here, there: Here, results: Path) -> None:
    with Bench(there.cache, runtime="fake") as bench:
        bench.store.systems.save_target(bench.target)
        key = next(key for _, key in settled(results))
        owner = Owner.current()
        bench.store.claims.claim(bench.target.key, [key], owner)
        bench.store.claims.fail(bench.target.key, key, "too big", owner)
        target = bench.target.key
    failed = there.cache.parent / "failed.jsonl"
    exported(there, failed)
    imported(there, results)
    assert imported(here, failed)["known"] == 1
    for cache in (here.cache, there.cache):
        with Store.open(cache) as store:
            (result,) = store.measurements.results(target, [key]).values()
            assert not hasattr(result, "reason")
    assert sound(there)


def test_what_is_just_being_measured_is_left_alone(there: Here, results: Path) -> None:
    (target, key), *_ = settled(results)
    with Bench(there.cache, runtime="fake") as bench:
        bench.store.systems.save_target(bench.target)
        owner = Owner.current()
        assert bench.store.claims.claim(target, [key], owner)
        assert imported(there, results)["busy"] == 1
        assert not bench.store.measurements.results(target, [key])
        bench.store.claims.release(target, [key], owner)
    assert imported(there, results)["measurements"] == 1


def test_an_empty_cache_has_nothing_to_export(there: Here, tmp_path: Path) -> None:
    done = there("cache", "export", tmp_path / "x.jsonl", runtime=None)
    assert done.status == 1
    assert "there is no cache in" in done.complaint
    Store.open(there.cache).close()
    done = there("cache", "export", tmp_path / "x.jsonl", runtime=None)
    assert "holds nothing yet: measure something first" in done.complaint


def refused(here: Here, path: Path) -> str:
    """The line that importing ``path`` is refused with."""
    done = here("cache", "import", path, runtime=None)
    assert (done.status, done.out) == (1, "")
    return done.complaint


@pytest.fixture
def empty(there: Here) -> Iterator[Here]:
    """Another cache, in which nothing is of what is refused."""
    yield there
    stats = there("cache", "stats", "--json", runtime=None).json
    assert not any(
        stats[name] for name in ("systems", "targets", "bricks", "plans", "measurements")
    )
    assert sound(there)


def test_a_file_that_is_cut_off_is_refused(empty: Here, results: Path, tmp_path: Path) -> None:
    whole = results.read_bytes()
    cut = tmp_path / "cut.jsonl"
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    places = {1, len(whole) // 2, len(whole) - 2, ends[0], ends[len(ends) // 2], ends[-2]}
    for size in sorted(places):
        cut.write_bytes(whole[:size])
        assert "nothing was imported" in refused(empty, cut) or size < ends[0], size


def test_a_file_that_was_altered_is_refused(empty: Here, results: Path, tmp_path: Path) -> None:
    whole = results.read_bytes()
    changed = tmp_path / "changed.jsonl"
    begin = whole.index(b"\n") + 1
    for place in range(begin, len(whole), len(whole) // 12):
        byte = bytes([whole[place] ^ 1])
        changed.write_bytes(whole[:place] + byte + whole[place + 1 :])
        assert "nothing was imported" in refused(empty, changed), place
    changed.write_bytes(whole + b'{"measurement": {}}\n')
    assert "nothing was imported" in refused(empty, changed)


def forged(path: Path, change: Callable[[Records], None]) -> Path:
    """The records of a file with a change, and digests that fit."""
    first, *records, _ = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    change(records)
    text = "".join(json.dumps(record) + "\n" for record in (first, *records)).encode()
    end = {"records": len(records), "sha256": hashlib.sha256(text).hexdigest()}
    forgery = path.with_name("forged.jsonl")
    forgery.write_bytes(text + json.dumps({"end": end}).encode() + b"\n")
    return forgery


def of(records: Records, kind: str) -> dict[str, Any]:
    record: dict[str, Any] = next(r[kind] for r in records if kind in r)
    return record


def measured(records: Records) -> dict[str, Any]:
    """The measurement of a brick."""
    record: dict[str, Any] = next(
        r["measurement"]
        for r in records
        if r.get("measurement", {}).get("brick", "").startswith("b1-")
    )
    return record


FORGERIES: dict[str, tuple[Callable[[Records], Any], str]] = {
    "system": (lambda r: of(r, "system")["identity"].update(logical_cpus=99), "key stands for"),
    "runtime": (lambda r: of(r, "target")["runtime"].update(threads=64), "key stands for"),
    "no system": (lambda r: r.pop(0), "a system that is nowhere"),
    "a brick's key": (lambda r: of(r, "brick").update(key="b1-" + "0" * 32), "its key are others"),
    "a brick's types": (lambda r: of(r, "brick").update(inputs=[]), "its inputs are others"),
    "a brick's model": (lambda r: of(r, "brick").update(model="////"), "refused"),
    "a brick's text": (lambda r: of(r, "brick").update(model="ä"), "refused"),
    "operations": (lambda r: of(r, "brick").update(flops="many"), "'many' operations"),
    "negative operations": (lambda r: of(r, "brick").update(flops=-1), "-1 operations"),
    "a plan's brick": (
        lambda r: of(r, "plan")["plan"]["occurrences"][0].__setitem__(0, "b1-" + "0" * 32),
        "which is nowhere",
    ),
    "a plan's values": (
        lambda r: of(r, "plan")["plan"]["occurrences"][0].__setitem__(1, [10**9]),
        "cannot be true",
    ),
    "a plan's rewritten weights": (
        lambda r: of(r, "plan")["plan"].update(rewritten_bytes=-1),
        "-1 bytes of weights are rewritten",
    ),
    "a plan's weight-bound bricks": (
        lambda r: of(r, "plan")["plan"].update(weight_bound=["b1-0"]),
        "bricks that it has not",
    ),
    "a plan's order": (lambda r: of(r, "plan")["plan"]["occurrences"].reverse(), "cannot be true"),
    "a negative sample": (lambda r: measured(r)["rounds"][0].__setitem__(0, [-1.0]), "-1.0"),
    "no sample": (lambda r: measured(r)["rounds"][0].__setitem__(0, []), "samples"),
    "no round": (lambda r: measured(r).update(rounds=[]), "neither samples nor a reason"),
    "wall time": (lambda r: measured(r).update(wall_s="NaN"), "nan s"),
    "a strange target": (lambda r: measured(r).update(target="t1-0"), "which is nowhere"),
    "a strange brick": (lambda r: measured(r).update(brick="b1-0"), "which is nowhere"),
    "twice": (lambda r: r.append(r[-1]), "two measurements of"),
    "order": (lambda r: r.insert(0, r.pop()), "nowhere"),
    "kind": (lambda r: r.append({"spell": {}}), "unknown kind"),
    "no object": (lambda r: r.append({"measurement": 3}), "no JSON object"),
    "a field": (lambda r: measured(r).pop("protocol"), "lacks 'protocol'"),
}


def test_what_cannot_be_true_is_refused_though_its_digest_fits(empty: Here, results: Path) -> None:
    for name, (change, problem) in FORGERIES.items():
        line = refused(empty, forged(results, change))
        assert "forged.jsonl is refused, nothing was imported" in line, name
        assert problem in line, name


def test_a_forgery_that_changes_nothing_is_taken_in(there: Here, results: Path) -> None:
    """So what the others are refused for is what was changed."""
    assert imported(there, forged(results, lambda records: None))["measurements"] > 0


def test_what_is_no_file_of_results_is_refused(
    empty: Here, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.open(empty.cache).close()
    other = tmp_path / "other.jsonl"
    for content in (b"", b"\n", b"{}\n", b"[1]\n", b"\x00\xff" * 50, b'{"format": 3}\n'):
        other.write_bytes(content)
        assert "holds no results" in refused(empty, other), content
    text = results.read_text(encoding="utf-8")
    other.write_text(text.replace('"version":1', '"version":2', 1), encoding="utf-8")
    assert "version 2" in refused(empty, other)
    assert "No such file" in refused(empty, tmp_path / "missing.jsonl")
    assert "directory" in refused(empty, tmp_path)
    monkeypatch.setattr(file_format, "MAX_LINE_BYTES", 1 << 10)
    assert "holds no results" in refused(empty, results)


def test_nothing_is_left_of_an_export_that_fails(here: Here, results: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    done = here("cache", "export", tmp_path / "none" / "x.jsonl", runtime=None)
    assert done.status == 1
    assert "cannot be written" in done.complaint
    assert sorted(tmp_path.iterdir()) == before
