"""``predict`` with lists: one matrix on a terminal and as JSON, whose first line names the best."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Here, bricks
from factories import conv_net, mlp, save
from terminals import shown_here

KEYS = (
    "model system runtime threads batch estimate_s low_s high_s measured_share published_share"
    " predicted_share peak_bytes error"
).split()


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return save(conv_net(), tmp_path, "conv.onnx")


def test_a_matrix_has_every_setting_and_a_mark(here: Here, net: Path) -> None:
    words = ("predict", net, "--threads", "1,2", "--batch", "1,8")
    rows = here(*words, "--json").json
    assert rows["answer"].startswith("conv is fastest ") or "undecided" in rows["answer"]
    places = [(row["threads"], row["batch"]) for row in rows["models"]]
    assert places == [(1, 1), (1, 8), (2, 1), (2, 8)]
    assert all(row.keys() >= set(KEYS) and row["error"] is None for row in rows["models"])
    done = here(*words)
    first, *table = done.out.splitlines()
    assert (done.status, first) == (0, rows["answer"])
    assert table[1].split() == ["threads", "batch", "1", "batch", "8"]
    assert sum("* " in line for line in table[2:6]) == 1


def test_a_matrix_fits_eighty_columns(here: Here, net: Path) -> None:
    words = ("--threads", "1,2", "--batch", "1,8,16,32", "--cache", here.cache, "--runtime", "fake")
    shown = shown_here("predict", net, *words, columns=80)
    assert max(map(len, shown.screen)) <= 80
    assert any(line.startswith("threads") for line in shown.screen)


def test_invalid_lists_get_one_plain_line(here: Here, net: Path) -> None:
    for words, said in (
        (("--threads", "1,x"), "--threads 1,x: 'x' is no whole number"),
        (("--threads", "1,"), "--threads 1,: '' is no whole number"),
        (("--threads", "0"), "--threads 0: 0 is not between 1 and 1024"),
        (("--batch", "1,-8"), "--batch 1,-8: '-8' is no whole number"),
        (("--batch", "9" * 20), "is not between 1 and 2147483647"),
        (("--runtime", "fake,onxruntime"), "no runtime is called 'onxruntime': did you mean onnx"),
        (("--on", "here,"), "--on here,: a name is empty"),
        (("--on", "here,a100"), "no a100 among the known systems"),
    ):
        runtime = None if "--runtime" in words else "fake"
        done = here("predict", net, *words, runtime=runtime)
        assert (done.status, done.out) == (2, ""), words
        assert said in done.complaint, words


def test_a_failed_cell_is_named_and_the_others_answered(here: Here, net: Path) -> None:
    words = ("predict", net, "--threads", "1,1000", "--no-measure", "--json")
    here("measure", net, "--threads", 1)
    done = here(*words[:-1])
    assert done.status == 1
    assert done.out.startswith("conv takes ") and "1 setting has no estimate" in done.out
    assert done.complaint.startswith("conv: no estimate without b1-")
    assert [row["error"] is None for row in here(*words).json["models"]] == [True, False]


def test_all_known_systems_are_asked_without_measuring(here: Here, net: Path) -> None:
    done = here("predict", net, "--on", "all")
    assert done.status == 2 and "no system is known yet" in done.complaint
    here("measure", net, "--threads", 1)
    (row,) = here("predict", net, "--on", "all", "--json").json["models"]
    assert (row["threads"], row["measured_share"], row["error"]) == (1, 1.0, None)


def test_many_models_are_ranked(here: Here, net: Path, tmp_path: Path) -> None:
    save(mlp(), tmp_path, "mlp.onnx")
    done = here("predict", tmp_path, "--threads", 1)
    assert done.status == 0
    assert "the fastest of 2 models here with fake and 1 thread" in done.out.splitlines()[0]
    first, second = done.out.splitlines()[3:5]
    fastest = done.out.split()[0]
    assert first.split()[0] == fastest.rstrip(",") and first != second


@pytest.mark.slow
def test_two_runtimes_are_compared_and_too_many_threads_refused(net: Path, tmp_path: Path) -> None:
    words = ("--runtime", "onnxruntime,openvino", "--threads", "1,1000", "--precision", 0.2)
    done = bricks("predict", net, *words, "--cache", tmp_path / "cache", "--json")
    assert done.status == 1
    rows = {(row["runtime"], row["threads"]): row for row in done.json["models"]}
    assert [place for place, row in rows.items() if row["error"] is None] == [
        ("onnxruntime", 1), ("openvino", 1),
    ]  # fmt: skip
    assert all(row["measured_share"] == 1.0 for row in rows.values() if row["error"] is None)
    assert "--threads 1000 is more than the" in done.err


def test_more_threads_than_processors_are_refused_without_measuring_too(
    here: Here, net: Path
) -> None:
    words = (net, "--threads", 1000, "--no-measure")
    for command in ("predict", "explain"):
        done = here(command, *words, runtime="onnxruntime")
        assert (done.status, done.out) == (2, "")
        assert "--threads 1000" in done.complaint


def test_a_batch_without_samples_has_no_rate(here: Here, tmp_path: Path) -> None:
    words = ("predict", save(mlp(batch="n"), tmp_path), "--threads", 1, "--shape", "x=0x32")
    done = here(*words)
    assert done.status == 0, done.err
    assert "samples/s" not in done.out and "a sample" not in done.out
    (row,) = here(*words, "--json").json["models"]
    assert row["batch"] == 0
