"""A model need not be a file: what would it cost without this block?"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from factories import conv_net, mlp, save
from refusals import refused

import bricks

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bench(tmp_path: Path) -> bricks.Bench:
    return bricks.Bench(tmp_path / "cache", runtime="fake", threads=1)


def test_a_proto_is_read_as_its_file_is(bench: bricks.Bench, tmp_path: Path) -> None:
    proto = conv_net()
    before = proto.SerializeToString()
    with bench:
        of_file = bench.read(save(proto, tmp_path, "net.onnx"))
        in_memory = bench.read(proto, name="net")
        assert (in_memory.digest, in_memory.name) == (of_file.digest, "net")
        assert bench.predict(in_memory) == bench.predict(of_file)
    assert proto.SerializeToString() == before


def test_its_graph_names_it_unless_somebody_does(bench: bricks.Bench) -> None:
    proto = mlp()
    proto.graph.name = "my net/v2"
    with bench:
        assert bench.read(proto).name == "my_net_v2"
        proto.graph.name = "///"
        assert bench.read(proto).name == "model"
        assert bench.read(proto, name="mine").name == "mine"


def test_without_a_block_it_costs_what_the_others_cost(bench: bricks.Bench) -> None:
    """An edited squeezenet: a whole fire module is skipped."""
    whole = onnx.load(ROOT / "models" / "squeezenet.onnx", load_external_data=False)
    with bench:
        known = bench.read(whole, name="squeezenet")
        graph = gs.import_onnx(whole)
        cut = next(node for node in graph.nodes if node.op == "Relu")
        cut.outputs[0].outputs[0].inputs[0] = cut.inputs[0]  # its reader reads what it read
        graph.cleanup().toposort()
        edited = bench.read(graph, name="without")
        before, after = bench.predict(known), bench.predict(edited)
        measured = bench.measure([known, edited])
    assert isinstance(before, bricks.Estimate) and isinstance(after, bricks.Estimate)
    assert after.estimate_s < before.estimate_s
    assert measured.new_bricks == 0


def test_weights_of_a_model_in_memory_are_those_that_bricks_are_verified_with(
    tmp_path: Path,
) -> None:
    with bricks.Bench(tmp_path / "cache", threads=1) as bench:
        verification = bench.verify(bench.read(conv_net()))
    assert verification.exact is True


def test_shapes_and_batches_are_given_as_for_files(bench: bricks.Bench) -> None:
    with bench:
        model = bench.read(conv_net(), batch=4)
    assert all(type_.shape[0] == 4 for _, type_ in model.inputs)


def test_what_is_no_model_is_refused_in_one_line(bench: bricks.Bench) -> None:
    with bench:
        with refused(bricks.UsageError, "ndarray", "onnx.ModelProto"):
            bench.read(np.zeros(3))  # type: ignore[arg-type]  # on purpose
        with refused(bricks.ModelError, "ModelProto"):
            bench.read(onnx.ModelProto())


def test_weights_need_not_be_there(bench: bricks.Bench) -> None:
    proto = mlp()
    with bench:
        whole = bench.read(proto)
        for weight in proto.graph.initializer:
            weight.ClearField("raw_data")
            weight.data_location = onnx.TensorProto.EXTERNAL
            weight.external_data.add(key="location", value="weights.bin")
        assert bench.read(proto).digest == whole.digest


def test_a_graph_that_makes_no_model_is_refused(bench: bricks.Bench) -> None:
    graph = gs.Graph(name="broken", inputs=["no tensor"])
    with bench, refused(bricks.ModelError, "'broken'"):
        bench.read(graph)


def test_files_of_models_in_memory_go_with_the_bench(bench: bricks.Bench) -> None:
    with bench:
        model = bench.read(mlp())
        assert model.folder.is_dir()
    assert not model.folder.exists()


def test_nobody_else_waits_for_the_library_that_edits_graphs() -> None:
    import subprocess

    code = "import sys, bricks; bricks.Bench; print('onnx_graphsurgeon' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n"
