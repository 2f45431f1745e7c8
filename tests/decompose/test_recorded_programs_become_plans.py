from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from recorded_programs import inference_step, training_step

from bricks.decompose.allocated import Allocated
from bricks.decompose.build import build
from bricks.decompose.granularity import Granularity
from bricks.decompose.memory import Phase
from bricks.decompose.plan import Decomposition, Plan
from bricks.graph.view import graph_of, parse_model
from bricks.operators.registry import flops
from bricks.reading.read import read_model


def decomposed(
    proto: onnx.ModelProto, folder: Path, granularity: str = "executed"
) -> Decomposition:
    path = folder / "program.onnx"
    path.write_bytes(proto.SerializeToString())
    model = read_model(path)
    graph = graph_of(parse_model(model.skeleton))
    return build(model, graph, Granularity.parse(granularity))


def facts(of: Decomposition) -> Allocated:
    return facts_of(of.plan)


def test_a_plan_knows_the_phases_of_a_step(tmp_path: Path) -> None:
    memory = facts(decomposed(training_step(), tmp_path))
    assert memory.kind == "training step"
    assert memory.phases == (
        Phase("forward", 2, 2),
        Phase("backward", 3, 3),
        Phase("optimizer", 1, 1),
    )
    assert memory.phase_names == ("forward",) * 2 + ("backward",) * 3 + ("optimizer",)


def test_joined_calls_count_as_calls(tmp_path: Path) -> None:
    memory = facts(decomposed(inference_step(), tmp_path, "2"))
    assert memory.phases == (Phase("forward", 1, 2),)


def test_values_are_freed_where_the_program_frees_them(tmp_path: Path) -> None:
    plan = decomposed(training_step(), tmp_path).plan
    made = {v: i for i, o in enumerate(plan.occurrences) for v in o.outputs}
    freed = {made[v]: at for v, at in enumerate(facts_of(plan).freed) if v in made}
    assert freed == {0: 1, 1: 2, 2: 4, 3: None, 4: None, 5: None}


def facts_of(plan: Plan) -> Allocated:
    assert isinstance(plan.memory, Allocated)
    return plan.memory


def test_views_share_the_storage_of_what_they_show(tmp_path: Path) -> None:
    plan = decomposed(training_step(), tmp_path).plan
    made = {i: o.outputs[0] for i, o in enumerate(plan.occurrences)}
    storages = facts_of(plan).storages
    assert storages[made[0]] == made[0]
    assert storages[made[3]] == -1  # of an input
    assert storages[made[5]] == -1  # of a weight, in place


def test_gradients_and_sizes_of_what_was_there_are_kept(tmp_path: Path) -> None:
    plan = decomposed(training_step(), tmp_path).plan
    assert facts_of(plan).gradients == (plan.occurrences[4].outputs[0],)
    assert facts_of(plan).state_bytes["parameters"] == 128


def test_a_plan_of_a_program_is_written_and_read_the_same(tmp_path: Path) -> None:
    plan = decomposed(training_step(), tmp_path).plan
    assert Plan.from_json(plan.to_json()) == plan


def test_an_onnx_model_has_no_phases(tmp_path: Path) -> None:
    assert "program" not in Plan("m", "d", "executed", (), (), (), ()).to_json()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"phases": [["forward", 1, 1]]}, "its phases are not its occurrences"),
        ({"freed": [None]}, "its lifetimes are not those of its values"),
        ({"storages": [99] * 7}, "its storages or gradients are no values"),
        ({"state_bytes": {"parameters": -1}}, "it holds less than no bytes"),
    ],
)
def test_contradictions_in_received_plans_are_noticed(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    decomposition = decomposed(training_step(), tmp_path)
    data = decomposition.plan.to_json()
    data["program"] = {**data["program"], **change}
    assert Plan.from_json(data).problem(decomposition.bricks) == message


def test_the_work_of_calls_is_counted(tmp_path: Path) -> None:
    graph = graph_of(training_step())
    assert flops(graph, [0]) == 2 * 2 * 8 * 4
    assert flops(graph, [1]) == 2 * 4
    assert flops(graph, [3]) == 0
    assert flops(graph, [0, 1, 2, 3, 4, 5]) == 128 + 8 + 8 + 0 + 128 + 32
