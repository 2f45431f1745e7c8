from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch_environment
from onnx import TensorProto
from recorded_programs import inference_step
from refusals import refused
from tiers import slow_but
from torch_environment import program

from bricks import Bench, BricksError, Estimate, ModelComparison, UsageError, WorkerError
from bricks.analysis.latency_survey import survey
from bricks.compose.memory.peak import PeakMemory
from bricks.decompose.plan import Decomposition
from bricks.graph.call import BACKWARD, FORWARD, OPTIMIZER
from bricks.graph.model import Model
from bricks.graph.model_metadata import noted_sketches
from bricks.graph.program import PHASE, Call, call_of
from bricks.graph.sketch import Sketch
from bricks.graph.view import parse_model
from bricks.measure.conditions import Conditions, StopRule
from bricks.reading.read import read_model
from bricks.report.latency_page import latency_page
from bricks.session import whole_models
from bricks.studies.inference.result import ComparisonFailure
from bricks.suite import read_suite, write_suite

ONCE = Conditions(rule=StopRule(min_rounds=1, max_rounds=1, passes=1), exclusive=False)
# Forward passes and training steps; optimisers of each kind, an LSTM, bags of words, bfloat16.
PROGRAMS = (
    "convolutions", "convolutions_strided", "momentum", "adamw", "foreach", "words", "bags", "half",
)  # fmt: skip

# Layers whose activations are computed again, with the same masks or with others.
RECOMPUTED = (
    "recomputed", "recomputed_reentrant", "recomputed_with_other_masks",
    "recomputed_reentrant_with_other_masks",
)  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with torch_environment.one_recorder():
        folder = tmp_path_factory.mktemp("torch") / "cache"
        with Bench(folder, runtime="torch", threads=1, conditions=ONCE) as opened:
            yield opened


def decomposed(bench: Bench, name: str) -> Decomposition:
    return bench.decompose(bench.read(program(name)))


def operators(of: Decomposition) -> list[str]:
    return [bricks for o in of.plan.occurrences for bricks in of.bricks[o.brick].operators]


def test_a_training_step_is_recorded_from_its_forward_pass_to_its_optimizer(bench: Bench) -> None:
    model = bench.read(program("momentum"))
    nodes = parse_model(model.skeleton).graph.node
    phases = [{p.key: p.value for p in node.metadata_props}[PHASE] for node in nodes]
    assert list(dict.fromkeys(phases)) == [FORWARD, BACKWARD, OPTIMIZER]
    calls = {(node.op_type, phase) for node, phase in zip(nodes, phases, strict=True)}
    assert ("convolution", FORWARD) in calls
    assert ("convolution_backward", BACKWARD) in calls
    assert any(phase == OPTIMIZER and "mul_" in name for name, phase in calls)


def test_every_call_with_its_arguments_is_a_node(bench: Bench) -> None:
    nodes = parse_model(bench.read(program("convolutions")).skeleton).graph.node
    convolution = next(node for node in nodes if node.op_type == "convolution")
    positional, named = call_of(convolution).arguments
    assert positional == [
        {"t": 0}, {"t": 1}, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
    ]  # fmt: skip
    assert named == {}
    assert convolution.domain == "org.pytorch.aten"


def test_no_weight_and_no_code_is_in_what_is_recorded(bench: Bench) -> None:
    model = bench.read(program("momentum"))
    proto = parse_model(model.skeleton)
    assert "first.weight" in {tensor.name for tensor in proto.graph.initializer}
    assert len(model.skeleton) < 100_000
    assert not any(t.raw_data or t.float_data for t in proto.graph.initializer)


def test_recording_again_gives_the_same_digest(bench: Bench) -> None:
    assert bench.read(program("adamw")).digest == bench.read(program("adamw")).digest


def test_equal_calls_are_one_brick(bench: Bench) -> None:
    plan = decomposed(bench, "momentum").plan
    assert len(plan.keys) < len(plan.occurrences)


def test_numbers_that_do_not_change_the_work_do_not_count(bench: Bench) -> None:
    one, other = decomposed(bench, "momentum"), decomposed(bench, "momentum_slower")
    assert set(one.plan.keys) == set(other.plan.keys)


def sketches(bench: Bench, name: str, operator: str) -> dict[str, Sketch]:
    """Sketches in all bricks of an operator, by the names of their values."""
    bricks = decomposed(bench, name).bricks.values()
    name = f"org.pytorch.aten.{operator}"
    protos = [parse_model(b.model) for b in bricks if name in b.operators]
    return {key: sketch for proto in protos for key, sketch in noted_sketches(proto).items()}


@pytest.mark.parametrize(
    ("operator", "features"),
    [
        ("sort", {"rises": 1.0}),
        ("_unique2", {"distinct": 5}),
        ("index.Tensor", {"zeros": 1 - 500 / 4000, "changes": 0.0}),
        ("searchsorted.Tensor", {"rises": 1.0}),
        ("elu", {"negative": 0.5, "changes": 0.0}),
        ("embedding", {"distinct": 30}),
    ],
)
def test_calls_are_measured_on_the_distribution_that_they_read(
    bench: Bench, operator: str, features: dict[str, float]
) -> None:
    by_name = sketches(bench, "deciding", operator)
    assert by_name
    for sketch in by_name.values():
        assert features.items() <= sketch.to_json().items(), sketch


def test_what_is_like_random_values_is_no_part_of_a_brick(bench: Bench) -> None:
    for operator in ("sort", "embedding"):
        assert sketches(bench, "deciding_little", operator) == {}


def test_equal_distributions_are_one_brick(bench: Bench) -> None:
    one, other = (bench.read(program("deciding"), batch=seed) for seed in (1, 2))
    assert one.digest == other.digest or one.skeleton != other.skeleton
    keys = [
        {k for k, b in bench.decompose(model).bricks.items() if "aten.sort" in b.operators[0]}
        for model in (one, other)
    ]
    assert keys[0] == keys[1]


@pytest.mark.parametrize("name", ["masked", "deciding"])
def test_masks_select_as_many_as_in_the_recorded_step(bench: Bench, name: str) -> None:
    model = bench.read(program(name))
    (mask,) = sketches(bench, name, "index.Tensor").values()
    kept, all_ = {"masked": (10, 64), "deciding": (500, 4000)}[name]
    assert mask.zeros == 1 - kept / all_
    assert bench.measure([model]).failures == ()
    assert bench.verify(model).exact


def test_strides_count(bench: Bench) -> None:
    one, other = decomposed(bench, "convolutions"), decomposed(bench, "convolutions_strided")
    convolutions = [
        {k for k, b in of.bricks.items() if b.operators == ("org.pytorch.aten.convolution",)}
        for of in (one, other)
    ]
    assert len(convolutions[0] - convolutions[1]) == 1
    assert len(convolutions[1] - convolutions[0]) == 1


def test_the_batch_size_reaches_the_program(bench: Bench) -> None:
    model = bench.read(program("convolutions"), batch=5)
    assert dict(model.inputs)["input0"].shape == (5, 3, 12, 12)


@pytest.mark.parametrize("name", PROGRAMS)
def test_chained_bricks_equal_the_real_step_bit_by_bit(bench: Bench, name: str) -> None:
    facts = bench.verify(bench.read(program(name)))
    assert facts.exact
    assert facts.difference.finite


def test_tensors_without_elements_are_those_of_the_step(bench: Bench) -> None:
    model = bench.read(program("without_elements"))
    assert bench.verify(model).exact
    assert bench.measure([model]).failures == ()


@pytest.mark.parametrize(
    "name", slow_but({"recomputed", "reseeded"}.__contains__, (*RECOMPUTED, "reseeded"))
)
def test_the_calls_made_again_draw_what_the_step_draws(bench: Bench, name: str) -> None:
    assert bench.verify(bench.read(program(name))).exact


@pytest.mark.parametrize("name", slow_but({"recomputed"}.__contains__, RECOMPUTED))
def test_what_checkpointing_does_around_its_layers_is_part_of_the_step(
    bench: Bench, name: str
) -> None:
    nodes = parse_model(bench.read(program(name)).skeleton).graph.node
    overhead = [node for node in nodes if node.domain == "org.pytorch.recomputation"]
    phases = [{p.key: p.value for p in node.metadata_props}[PHASE] for node in overhead]
    calls = [(node.op_type, phase) for node, phase in zip(overhead, phases, strict=True)]
    assert calls == [*[("hide", FORWARD)] * 2, *[("recompute", BACKWARD)] * 2]
    restored = [node.op_type for node in nodes if node.domain == "org.pytorch.generator"]
    assert bool(restored) == ("other_masks" not in name)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECOMPUTED)
def test_steps_that_compute_activations_again_are_measured(bench: Bench, name: str) -> None:
    model = bench.read(program(name))
    assert bench.measure([model]).failures == ()
    estimate = bench.predict(model)
    assert isinstance(estimate, Estimate)
    bricks = bench.decompose(model).bricks
    seconds = {
        operator: share.latency_s
        for share in estimate.shares
        for operator in bricks[share.brick].operators
        if "recomputation" in operator
    }
    assert len(seconds) == 2 and all(seconds.values())


@pytest.mark.slow
def test_all_bricks_are_measured_beside_the_real_step(bench: Bench) -> None:
    compared = bench.compare([bench.read(program(name)) for name in PROGRAMS])
    assert len(compared.rows) == len(PROGRAMS)
    for row in compared.rows:
        assert isinstance(row, ModelComparison), row
        assert row.estimate.coverage == 1
        assert math.isfinite(row.ratio) and row.ratio > 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raises", "raised ValueError: no luck today (programs.py, line "),
        ("compiled_already", "torch-compiled"),
        ("with_closure", "LBFGS"),
        ("list_of_inputs", "number 0 of its inputs is of type list"),
        ("returns_number", "returned of type int: return a dict with module and inputs"),
        ("without_module", "its module is None: give a torch.nn.Module"),
        ("unknown_key", "returned a dict with 'los': give module, inputs, loss and optimizer"),
        ("without_optimizer", "a training step needs a loss and an optimizer: give optimizer"),
        ("loss_of_two", "its loss is a tensor of shape (2,): return a scalar tensor"),
        ("elsewhere", "its weight is on device meta: keep all data on the CPU"),
        ("sparse", "makes a tensor of layout sparse_coo, which cannot be replayed"),
        ("changing", "keeps state between steps: call 0 was log and is exp in the next step"),
        ("fails_inside", "raised RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
        ("foreign", "mine::twice cannot be replayed: use operators of PyTorch itself"),
        ("quantised_lstm", "reads packed weights, an object of PyTorch whose values a recording"),
        ("absent", "there is no function 'absent' in it, only convolutions, "),
    ],
)
def test_a_program_that_cannot_be_recorded_is_told_in_one_line(
    bench: Bench, name: str, message: str
) -> None:
    with pytest.raises(BricksError) as caught:
        bench.read(program(name))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_or_module_that_is_not_there_is_named(bench: Bench, tmp_path: Path) -> None:
    with refused(WorkerError, f"{tmp_path}/absent.py:step"):
        bench.read(f"{tmp_path}/absent.py:step")
    with refused(WorkerError, "absent_package.nets:step", "PYTHONPATH"):
        bench.read("absent_package.nets:step")
    with refused(UsageError, program("momentum")):
        bench.read(program("momentum"), shapes={"x": (1,)})


def test_zeros_count_where_they_take_long(bench: Bench) -> None:
    # Of 40 words 20 occur at most: the moments of the others' rows stay zero.
    (moments,) = sketches(bench, "bags", "_foreach_sqrt").values()
    assert moments.zeros is not None and 0.5 <= moments.zeros < 1


@pytest.mark.slow
def test_the_phases_of_a_step_add_up_to_its_latency(bench: Bench) -> None:
    estimate = bench.predict(bench.read(program("momentum")))
    assert isinstance(estimate, Estimate)
    assert [phase.phase for phase in estimate.phases] == [FORWARD, BACKWARD, OPTIMIZER]
    total_s = sum(phase.estimate_s for phase in estimate.phases)
    assert estimate.estimate_s - estimate.call_overhead_s == pytest.approx(total_s, rel=1e-3)


@pytest.mark.slow
def test_the_report_tells_the_phases_apart(bench: Bench) -> None:
    bench.predict(bench.read(program("momentum")))
    workspace = bench.workspace
    surveyed = survey(workspace, [workspace.target], lambda plan: True)
    text = latency_page(surveyed, version="0", made="today")
    assert re.search(r"<p>\S*momentum: forward [^<]* backward [^<]* optimizer [^<]* calls", text)


def test_peak_memory_has_the_parts_of_a_training_step(bench: Bench) -> None:
    memory = whole_models.predict_memory(bench.workspace, bench.read(program("adamw")))
    assert isinstance(memory, PeakMemory)
    assert memory.optimizer_bytes > memory.weight_bytes > 0  # two moments
    assert memory.activation_bytes > 0
    assert memory.unknown


@pytest.mark.slow
def test_the_runtimes_own_profile_tells_when_each_call_ran(bench: Bench) -> None:
    model = bench.read(program("convolutions"))
    profile = whole_models.profile(bench.workspace, model)
    assert profile.unmatched is None
    assert sorted(profile.of_occurrences) == list(
        range(len(bench.decompose(model).plan.occurrences))
    )


def received(bench: Bench, model: Model, folder: Path) -> Model:
    """Write a model to a suite, and read it as another host does."""
    suite = folder / "suite.zip"
    models = [(model, bench.decompose(model))]
    write_suite(suite, models, runtime=bench.workspace.runtime, granularity="executed", package="0")
    (brought,) = read_suite(suite).models
    return brought


def test_a_suite_brings_calls_to_other_hosts_and_no_code(bench: Bench, tmp_path: Path) -> None:
    model = bench.read(program("momentum"))
    brought = received(bench, model, tmp_path)
    assert brought.digest == model.digest
    for secret in (b"programs.py", str(Path.cwd()).encode()):
        assert secret not in brought.skeleton


@pytest.mark.slow
def test_other_hosts_measure_calls_and_no_real_step(bench: Bench, tmp_path: Path) -> None:
    model = bench.read(program("convolutions"))
    brought = received(bench, model, tmp_path)
    with Bench(tmp_path / "cache", runtime="torch", threads=1, conditions=ONCE) as other:
        (row,) = other.compare([brought]).rows
        assert isinstance(row, ComparisonFailure)
        assert "its code is not here" in row.error
        assert other.measure([brought]).bricks == len(bench.decompose(model).plan.keys)
        assert isinstance(other.predict(brought, measure=False), Estimate)


@pytest.mark.slow
def test_the_zoos_programs_are_measured_as_they_were_recorded(bench: Bench) -> None:
    model = bench.read("torch_two_tower")
    assert bench.measure([model]).failures == ()
    assert bench.read("torch_two_tower", batch=3).digest != model.digest


@pytest.mark.parametrize("name", ["quantised", "quantised_rows"])
def test_packed_weights_are_recorded_as_what_they_are_made_of(bench: Bench, name: str) -> None:
    model = bench.read(program(name))
    done = whole_models.verify(bench.workspace, model)
    assert done.own_weights and done.exact
    inputs = [info.type.tensor_type for info in parse_model(model.skeleton).graph.input]
    packed = [of for of in inputs if of.elem_type == TensorProto.INT8]
    assert [[dim.dim_value for dim in of.shape.dim] for of in packed] == [[32, 16], [5, 32]]
    assert bench.measure([model]).failures == ()


def test_a_program_from_elsewhere_may_only_compute(bench: Bench, tmp_path: Path) -> None:
    path, models = tmp_path / "hostile.onnx", []
    calls = {
        "aten::save cannot be replayed": Call("aten", "save", ([{"t": 0}], {})),
        "aten::from_file cannot be replayed": Call("aten", "from_file", ([{"t": 0}], {})),
        "load_library::__call__ cannot be": Call("load_library", "__call__", ([{"t": 0}], {})),
        "has no operator aten::__class__": Call("aten", "__class__", ([{"t": 0}], {})),
        # A kernel is named by its digest alone.
        "by no digest": Call("kernel", "kernel", ([{"t": 0}], {"key": "../../elsewhere"})),
    }
    for call in calls.values():
        proto = inference_step()
        proto.graph.node[1].CopyFrom(call.node(["y"], ["z"]))
        proto.opset_import.add(domain=f"org.pytorch.{call.namespace}", version=1)
        path.write_bytes(proto.SerializeToString())
        models.append(read_model(path))
    failures = bench.measure(models).failures
    assert len(failures) == len(calls)
    for reason in calls:
        assert any(reason in failure.reason for failure in failures), (reason, failures)


def test_an_onnx_model_is_refused(bench: Bench) -> None:
    with refused(WorkerError, "squeezenet", "PyTorch", "--runtime"):
        bench.decompose(bench.read("squeezenet"))


def test_other_runtimes_refuse_programs(tmp_path: Path) -> None:
    with Bench(tmp_path / "cache", runtime="fake") as bench:
        with refused(WorkerError, program("momentum"), "fake", "--runtime torch"):
            bench.read(program("momentum"))
