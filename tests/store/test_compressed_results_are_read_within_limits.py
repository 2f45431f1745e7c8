from __future__ import annotations

import lzma
from pathlib import Path

import pytest
from refusals import refused

from bricks.errors import StoreError
from bricks.store.results_file import XZIPPED, reading, write

RECORDS = [("system", {"key": f"s{i}", "text": "x" * i}) for i in range(2000)]


def read(path: Path) -> list[tuple[str, dict[str, object]]]:
    with reading(path) as records:
        return list(records)


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_what_is_written_is_read_the_same(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"results.jsonl{ending}"
    assert write(path, RECORDS, package="0") == len(RECORDS)
    assert read(path) == RECORDS
    again = tmp_path / f"again.jsonl{ending}"
    write(again, RECORDS, package="0")
    assert again.read_bytes() == path.read_bytes()


def test_an_archive_that_is_cut_off_or_altered_is_refused(tmp_path: Path) -> None:
    path = tmp_path / f"results.jsonl{XZIPPED}"
    write(path, RECORDS, package="0")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with refused(StoreError, path):
        read(path)
    altered = bytearray(whole)
    altered[len(whole) // 2] ^= 0xFF
    path.write_bytes(altered)
    with refused(StoreError, path):
        read(path)


def test_an_archive_that_demands_much_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "greedy.jsonl.xz"
    greedy = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 512 << 20}]
    path.write_bytes(lzma.compress(b"{}\n", filters=greedy))
    with refused(StoreError, path) as caught:
        read(path)
    assert isinstance(caught.value.__cause__, lzma.LZMAError)  # it was not even unpacked
