"""A private suite tells nothing of its models, and their latency elsewhere comes back with it."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import Here
from factories import conv_net, mlp, save
from graphs import FLOATS, cut, one_node
from onnx import TensorProto, helper, numpy_helper
from refusals import refused

import bricks.session.workspace
from bricks import read_suite
from bricks.decompose.identity import key_of
from bricks.errors import SuiteError
from bricks.suite.suite import refuse_identifying_text
from bricks.system import fingerprint

# What every name and every text of the model begins with.
MARK = "zyxsecret"


def marked() -> onnx.ModelProto:
    """A network in which all that can be named is, and all that can be said is."""
    net = conv_net()
    named: dict[str, str] = {}

    def name(old: str) -> str:
        return named.setdefault(old, f"{MARK}{len(named)}") if old else old

    graph = net.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        value.name, value.doc_string = name(value.name), f"{MARK} value"
        for dim in value.type.tensor_type.shape.dim:
            dim.denotation = f"{MARK}_DIM"
    for tensor in graph.initializer:
        tensor.name, tensor.doc_string = name(tensor.name), f"{MARK} tensor"
    for node in graph.node:
        node.input[:] = map(name, node.input)
        node.output[:] = map(name, node.output)
        node.name, node.doc_string = name(f"node {node.output[0]}"), f"{MARK} node"
        node.metadata_props.add(key=f"{MARK}_key", value=f"{MARK}_value")
    graph.name, graph.doc_string = f"{MARK}_graph", f"{MARK} graph"
    net.producer_name, net.producer_version = f"{MARK}_producer", f"{MARK}_1"
    net.domain, net.doc_string = f"{MARK}.domain", f"{MARK} model"
    net.metadata_props.add(key=f"{MARK}_license", value=f"{MARK}_company")
    return net


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / f"{MARK}_folder"
    folder.mkdir()
    return save(marked(), folder, f"{MARK}_file.onnx")


def generated(here: Here, path: Path, *words: object, runtime: str = "fake") -> Path:
    done = here("generate", *words, "--private", "--out", path, runtime=runtime)
    assert (done.status, done.err) == (0, "")
    return path


@pytest.mark.parametrize(
    "runtime, cut", [("fake", "executed"), ("fake", "3"), ("onnxruntime", "executed")]
)
def test_no_name_and_no_text_of_the_model_is_in_the_archive(
    runtime: str, cut: str, here: Here, model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "suite.zip"
    generated(here, path, model, "--granularity", cut, runtime=runtime)
    whole = path.read_bytes()
    assert MARK.encode() not in whole
    with zipfile.ZipFile(path) as file:  # nor in what a reader would unpack
        contents = {name: file.read(name) for name in file.namelist()}
    for name, content in contents.items():
        assert MARK not in name
        assert MARK.encode() not in content
    own = {text for text in strings_of(onnx.load(model)) if len(text) > 3 and MARK in text}
    assert len(own) > 30
    assert not any(text.encode() in whole for text in own)


def strings_of(proto: object) -> Iterator[str]:
    """All texts in a message, at any depth."""
    if isinstance(proto, str):
        yield proto
    elif hasattr(proto, "ListFields"):
        for _, value in proto.ListFields():
            if isinstance(value, str) or hasattr(value, "ListFields"):
                yield from strings_of(value)
            elif not isinstance(value, bytes | int | float):
                for item in value:
                    yield from strings_of(item)


def test_nothing_tells_how_bricks_join(here: Here, model: Path, tmp_path: Path) -> None:
    """No plan, no order, no counts: files are sorted by keys, which are digests."""
    path = generated(here, tmp_path / "suite.zip", model)
    with zipfile.ZipFile(path) as file:
        names = file.namelist()
        manifest = json.loads(file.read("manifest.json"))
        facts = json.loads(file.read("bricks.json"))
        texts = file.read("README.md").decode()
    assert manifest.keys() == {"format", "granularity", "runtime", "files"}
    assert names == sorted(names)
    assert all(re.fullmatch(r"bricks/b1-[0-9a-f]{32}\.onnx", n) for n in names if "/" in n)
    assert {n for n in names if "/" not in n} == {"README.md", "bricks.json", "manifest.json"}
    assert list(facts) == sorted(facts)
    assert {field for brick_facts in facts.values() for field in brick_facts} == {
        "inputs", "weights", "outputs", "operators", "flops", "examples", "weight_bytes",
    }  # fmt: skip
    plan = here("decompose", model, "--json").json["models"][0]
    assert not re.search(rf"\b{plan['occurrences']}\b", texts)


def test_its_latency_elsewhere_is_estimated_at_home(
    here: Here,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = generated(here, tmp_path / "suite.zip", model, "--decoys", 7)
    home = fingerprint()
    there = replace(home, name="there", identity={**home.identity, "logical_cpus": 97})
    monkeypatch.setattr(bricks.session.workspace, "fingerprint", lambda: there)
    other = Here(tmp_path / "elsewhere", capsys)
    done = other("measure", path, "--json")
    assert done.status == 0
    assert done.json["new_bricks"] == len(read_suite(path).bricks)
    assert other("measure", path, "--json").json["new_bricks"] == 0
    back = tmp_path / "back.jsonl"
    assert other("cache", "export", back, runtime=None).status == 0
    assert MARK not in back.read_text(encoding="utf-8")
    monkeypatch.setattr(bricks.session.workspace, "fingerprint", lambda: home)
    refused = here("predict", model, "--on", "there")
    assert refused.status != 0
    assert here("cache", "import", back, runtime=None).status == 0
    estimate = here("predict", model, "--on", "there", "--json").json["models"][0]
    assert (estimate["measured_share"], estimate["error"]) == (1.0, None)
    assert estimate["estimate_s"] > 0


def test_decoys_are_of_the_zoo_and_the_same_each_time(
    here: Here, model: Path, tmp_path: Path
) -> None:
    mine = {b.key for b in read_suite(generated(here, tmp_path / "bare.zip", model)).bricks}
    path = generated(here, tmp_path / "suite.zip", model, "--decoys", 40)
    every = {b.key for b in read_suite(path).bricks}
    assert mine < every
    assert len(every - mine) == 40
    again = generated(here, tmp_path / "again.zip", model, "--decoys", 40)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_a_real_runtime_measures_bricks_by_themselves(here: Here, tmp_path: Path) -> None:
    path = generated(here, tmp_path / "suite.zip", save(mlp(), tmp_path, "mlp.onnx"),
                     runtime="onnxruntime")  # fmt: skip
    done = here("measure", path, "--threads", 1, "--json", runtime="onnxruntime")
    assert done.status == 0
    assert done.json["new_bricks"] == len(read_suite(path).bricks) > 0
    assert not done.json["failures"]


def labelled(labels: list[str]) -> onnx.ModelProto:
    graph = helper.make_graph(
        [
            helper.make_node(
                "LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml",
                keys_int64s=list(range(len(labels))), values_strings=labels,
            ),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [2])],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def constant_text() -> onnx.ModelProto:
    text = helper.make_tensor("t", TensorProto.STRING, [2], [b"ours", b"alone"])
    graph = helper.make_graph(
        [helper.make_node("Gather", ["t", "x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [2])],
        [text],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    "net, problem",
    [(labelled(["tumour", "none"]), "the text 'tumour'"), (constant_text(), "texts")],
)
def test_a_brick_that_holds_words_of_its_own_is_refused(
    net: onnx.ModelProto, problem: str, here: Here, tmp_path: Path
) -> None:
    out = tmp_path / "suite.zip"
    words = (save(net, tmp_path, "net.onnx"), "--out", out)
    done = here("generate", *words, "--private", runtime="onnxruntime")
    assert done.status == 1
    assert f"holds {problem}," in done.complaint
    assert not out.exists()
    assert here("generate", *words, runtime="onnxruntime").status == 0
    assert len(read_suite(out).models) == 1


def test_a_brick_of_an_operator_that_is_not_public_is_refused() -> None:
    graph = one_node("Relu", FLOATS, domain=f"{MARK}.operators")
    own = cut(replace(graph, opsets={f"{MARK}.operators": 1}), [0]).brick
    public = cut(one_node("Gelu", FLOATS, domain="com.microsoft"), [0]).brick
    refuse_identifying_text([public])
    with refused(SuiteError, f"'{MARK}.operators'"):
        refuse_identifying_text([public, own])


def test_words_that_onnx_itself_uses_tell_nothing(here: Here, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["a"], auto_pad="SAME_UPPER"),
            helper.make_node(
                "Resize", ["a", "", "s"], ["b"], mode="linear",
                coordinate_transformation_mode="align_corners",
            ),
            helper.make_node("Einsum", ["b", "b"], ["y"], equation="bcij,bcjk->bcik"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 16, 16])],
        [
            numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w"),
            numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "s"),
        ],
    )  # fmt: skip
    net = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = generated(here, tmp_path / "suite.zip", save(net, tmp_path, "net.onnx"),
                     "--granularity", 1, runtime="onnxruntime")  # fmt: skip
    assert {b.operators for b in read_suite(path).bricks} >= {("Conv",), ("Resize",), ("Einsum",)}


def test_what_needs_models_says_so(here: Here, model: Path, tmp_path: Path) -> None:
    path = generated(here, tmp_path / "suite.zip", model)
    for command in ("predict", "compare", "decompose"):
        done = here(command, path)
        assert done.status == 2, command
        assert f"{path} " in done.complaint and "'bricks measure'" in done.complaint, command


def test_options_that_make_no_sense_are_refused(here: Here, model: Path, tmp_path: Path) -> None:
    done = here("generate", model, "--out", tmp_path / "s.zip", "--decoys", 3)
    assert (done.status, "--private" in done.complaint) == (2, True)
    done = here("generate", model, "--out", tmp_path / "s.tar")
    assert (done.status, ".zip" in done.complaint) == (2, True)
    assert not (tmp_path / "s.zip").exists()


def test_an_altered_brick_is_refused(
    here: Here, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where all digests of files fit."""
    from hashlib import sha256

    path = generated(here, tmp_path / "suite.zip", model)
    with zipfile.ZipFile(path) as file:
        files = {name: file.read(name) for name in file.namelist()}
    one, two = sorted(name for name in files if name.startswith("bricks/"))[:2]
    assert key_of(files[one]) in one
    manifest = json.loads(files["manifest.json"])
    files[one], manifest["files"][one] = files[two], sha256(files[two]).hexdigest()
    files["manifest.json"] = json.dumps(manifest).encode()
    altered = tmp_path / "altered.zip"
    with zipfile.ZipFile(altered, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
    done = Here(tmp_path / "other", capsys)("measure", altered)
    assert done.status == 1
    assert "a brick in it is refused: its key are others than its model's" in done.complaint
