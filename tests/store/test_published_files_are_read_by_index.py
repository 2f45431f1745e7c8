"""A published file is unpacked once; its index is made again wherever it is not as it was made."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from factories import conv_net, save

from bricks import Bench
from bricks.samples.measurement import Measurement
from bricks.store import results_file
from bricks.store.published_file import PublishedFile


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of results of one target."""
    folder = tmp_path_factory.mktemp("results")
    with Bench(folder / "cache", runtime="fake") as bench:
        bench.measure([bench.read(save(conv_net(), folder))])
        target = bench.target.key
        bench.store.contents.export(folder / f"{target}.jsonl.xz", [target], package="0")
    return folder / f"{target}.jsonl.xz"


@pytest.fixture(autouse=True)
def derived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for what is derived, which begins empty."""
    monkeypatch.setenv("BRICKS_DERIVED", str(tmp_path / "derived"))
    return tmp_path / "derived"


def opened(results: Path) -> PublishedFile:
    return PublishedFile.read(results, hashlib.sha256(results.read_bytes()).hexdigest())


def contents(file: PublishedFile) -> dict[str, object]:
    """All that a file tells of its target."""
    target = file.path.name.partition(".")[0]
    costs_s = file.costs(target)
    plans = file.plans(target, "executed")
    keys = [key for plan, _ in plans for key in plan.keys]
    return {
        "costs": costs_s,
        "results": file.results(target, [*costs_s]),
        "plans": plans,
        "usage": file.usage(target, "executed"),
        "bricks": file.bricks(keys),
        "watched": file.watched(target),
    }


def test_it_is_unpacked_once(results: Path, derived: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = opened(results)
    told = contents(first)
    assert first.indexed_s is not None
    assert [*map(type, told["results"].values())].count(Measurement) == len(told["costs"]) > 3
    assert len(told["bricks"]) > 1 and len(told["plans"]) == 1
    assert all(host.taken_s for host in told["watched"]) and len(told["watched"]) > 0

    def unpack(*_: object) -> None:
        raise AssertionError("it was unpacked again")

    monkeypatch.setattr(results_file, "uncompressed", unpack)
    again = opened(results)
    assert contents(again) == told
    assert again.indexed_s is None


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda content: flipped(content, 0),
        lambda content: flipped(content, len(b"bricks-lines 1\n") + 20),  # in the first line
        lambda content: flipped(content, len(content) - 1),
        lambda content: flipped(content, len(content) - 60),  # in the header
        lambda content: content.replace(b"bricks-lines 1", b"bricks-lines 0"),
        lambda content: flipped(content, content.rindex(b'":[') + 3),
    ],
)
def test_a_damaged_or_old_index_is_made_again_in_silence(
    results: Path, derived: Path, damage: Callable[[bytes], bytes]
) -> None:
    told = contents(opened(results))
    (index,) = derived.glob("published/*.lines")
    index.write_bytes(damage(index.read_bytes()))
    assert contents(opened(results)) == told
    assert contents(opened(results)) == told


def test_each_byte_of_an_index_counts(results: Path, derived: Path) -> None:
    told = contents(opened(results))
    (index,) = derived.glob("published/*.lines")
    content = index.read_bytes()
    for place in range(0, len(content), max(1, len(content) // 60)):
        index.write_bytes(flipped(content, place))
        assert contents(opened(results)) == told, place


def test_where_nothing_can_be_written_it_is_read_all_the_same(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    told = contents(opened(results))
    monkeypatch.setenv("BRICKS_DERIVED", str(tmp_path / "file"))
    file = opened(results)
    assert contents(file) == told
    assert not file.index_kept
