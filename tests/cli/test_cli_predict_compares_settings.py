"""``predict`` with lists: one matrix on a terminal and as JSON, whose first line names the best."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import Here, bricks
from factories import constant, conv_net, mlp, model, node, save, value
from refusals import refused
from terminals import shown_here

from bricks.cli.sweep_options import shapes_of_each
from bricks.errors import UsageError
from bricks.store import Store

KEYS = (
    "model system runtime threads batch estimate_s low_s high_s measured_share published_share"
    " predicted_share peak_bytes error"
).split()


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return save(conv_net(), tmp_path, "conv.onnx")


def line_net() -> onnx.ModelProto:
    """Reads lines of text of any width: Conv, Relu, the mean over the width, and a dense layer."""
    return model(
        [
            node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
            node("Relu", ["c"], ["r"]),
            node("ReduceMean", ["r", "axes"], ["m"], keepdims=0),
            node("Gemm", ["m", "d"], ["y"]),
        ],
        [value("x", ["n", 1, 8, "width"])],
        [value("y", ["n", 16])],
        [
            constant("w", np.ones((4, 1, 3, 3)), "FLOAT"), constant("axes", [2, 3]),
            constant("d", np.ones((4, 16)), "FLOAT"),
        ],
    )  # fmt: skip


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


def test_shapes_and_batches_make_one_matrix(here: Here, tmp_path: Path) -> None:
    ocr = save(line_net(), tmp_path, "ocr.onnx")
    words = ("predict", ocr, "--shape", "x=?x1x8x16,?x1x8x32", "--batch", "1,6", "--threads", 1)
    rows = here(*words, "--json").json["models"]
    assert [(row["shapes"], row["batch"]) for row in rows] == [
        ([f"x=?x1x8x{width}"], batch) for width in (16, 32) for batch in (1, 6)
    ]
    assert all(row["error"] is None for row in rows)
    done = here(*words)
    assert done.status == 0 and done.out.startswith("At ?x1x8x16, ocr")
    assert done.out.splitlines()[2].split() == ["shape", "batch", "1", "batch", "6"]
    assert sum("* " in line for line in done.out.splitlines()[3:7]) == 2


def test_bricks_that_shapes_share_are_measured_once(here: Here, tmp_path: Path) -> None:
    net = save(line_net(), tmp_path, "ocr.onnx")
    words = ("predict", net, "--shape", "x=1x1x8x16,1x1x8x32", "--threads", 1, "--json")
    narrow, wide = ({b["brick"] for b in of["bricks"]} for of in here(*words).json["models"])
    assert narrow & wide and narrow != wide
    with Store.open(here.cache) as store:
        (target,) = store.systems.targets()
        assert set(store.measurements.costs(target.key)) >= narrow | wide


def test_a_file_of_sizes_gives_the_distribution_over_them(here: Here, tmp_path: Path) -> None:
    net, sizes = save(line_net(), tmp_path, "ocr.onnx"), tmp_path / "sizes.csv"
    sizes.write_text("x,batch,weight\n?x1x8x16,1,3\n?x1x8x32,2,1\n")
    words = ("predict", net, "--sizes", sizes, "--threads", 1)
    facts = here(*words, "--json").json
    (mix,) = facts["mixes"]
    one, two = mix["sizes"]
    assert (one["shapes"], one["batch"], one["share"]) == (["x=?x1x8x16"], 1, 0.75)
    assert mix["mean_s"] == pytest.approx(0.75 * one["estimate_s"] + 0.25 * two["estimate_s"])
    # The fake runtime takes a quarter longer after another size.
    costs = [0.25 * of["estimate_s"] for of in (one, two)]
    assert mix["change_s"] == pytest.approx(sum(costs) / 2, rel=0.02)
    assert (one["new_s"], mix["change_unknown"], mix["error"]) == (None, None, None)
    done = here(*words)
    assert done.out.startswith("ocr takes ") and " on average over 2 sizes here" in done.out
    assert "a run after another size takes" in done.out
    header = done.out.splitlines()[2]
    assert header.split()[:4] == ["shape", "batch", "share", "latency"] and len(header) <= 80
    known = here(*words, "--no-measure", "--json").json["mixes"][0]
    assert known["mean_s"] == mix["mean_s"] and known["change_s"] is None
    assert "--no-measure" in known["change_unknown"]


def test_a_size_that_the_model_refuses_is_named(here: Here, tmp_path: Path) -> None:
    net, sizes = save(line_net(), tmp_path, "ocr.onnx"), tmp_path / "sizes.csv"
    sizes.write_text("x,weight\n1x1x8x16,3\n1x2x8x16,1\n")
    done = here("predict", net, "--sizes", sizes, "--threads", 1)
    refusal, lacking = done.err.splitlines()
    assert done.status == 1 and "axis 1 is fixed at 1" in refusal
    assert lacking == "bricks: ocr: no mix without 1 of its 2 sizes"
    for words, said in (
        (("--shape", "x=1x1x8x16"), "--shape gives input 'x'"),
        (("--batch", "1,2"), "both list sizes"),
    ):
        assert said in here("predict", net, "--sizes", sizes, *words).complaint


def test_lists_of_several_inputs_belong_together() -> None:
    words = ["ids=1x8,1x16", "mask=1x8,1x16", "types=1x4"]
    assert shapes_of_each("--shape", words) == (
        ("ids=1x8", "mask=1x8", "types=1x4"), ("ids=1x16", "mask=1x16", "types=1x4"),
    )  # fmt: skip
    assert shapes_of_each("--shape", ["x="]) == (("x=",),)
    for texts, said in (
        (["ids=1x8,1x16", "mask=1x8,1x16,1x32"], "'ids' 2, 'mask' 3"),
        (["x=1x8", "x=1x16"], "gives input 'x' twice"),
        (["x=1x8,one"], "not a shape: 'x=one'"),
        (["1x8,1x16"], "not a shape: '1x8'"),
    ):
        with refused(UsageError, said):
            shapes_of_each("--shape", texts)


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
