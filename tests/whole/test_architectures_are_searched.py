"""The benchmark about random architectures, on a few of them and the fake runtime."""

from __future__ import annotations

import json

import onnx
import pytest
import search
from search_space import CNN, TRANSFORMER, architecture

from bricks.session import adaptive

COUNT, SAMPLE, EFFORT = 5, 2, "balanced"


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("search")
    run = search.Search(folder, 100, COUNT, SAMPLE, EFFORT, threads=1, runtime="fake")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adaptive, "SOON_S", 0.0)  # few small bricks: they are planned all the same
        found = run.run()
    return found | {"commands": {"`bricks predict`": 1.0, "`bricks report`": 2.0}}


def test_all_are_predicted_and_a_sample_is_run(facts: dict[str, object]) -> None:
    assert facts["predicted"] == COUNT
    assert facts["first"] == 100
    assert 0 < facts["measured_bricks"] < facts["bricks"]
    rows = facts["rows"]
    assert len({row["model"] for row in rows}) == SAMPLE
    for row in rows:
        assert row["again_s"] == pytest.approx(row["measured_s"], rel=0.02)
        assert row["low_s"] <= row["measured_s"] <= row["high_s"]


def test_the_page_tells_what_was_found(facts: dict[str, object]) -> None:
    page = search.page([facts, facts | {"first": 200}])
    assert f"{COUNT} random architectures" in page
    for first in (100, 200):
        assert page.count(f"`{EFFORT}`, {first} to {first + COUNT - 1} |") == 3


def test_the_committed_page_is_written_from_its_results() -> None:
    assert search.PAGE.read_text(encoding="utf-8") == search.page(search.kept_runs())
    assert json.loads(search.RAW.read_text(encoding="utf-8")).keys() == {"runs"}


def test_an_architecture_follows_from_its_number_and_is_valid() -> None:
    for number in range(6):
        proto = architecture(number)
        assert architecture(number).SerializeToString() == proto.SerializeToString(), number
        kind = TRANSFORMER if number % 3 == 2 else CNN
        assert proto.graph.name == f"{kind}_{number:04d}"
        assert not any(t.raw_data for t in proto.graph.initializer if len(t.dims) > 1), number
        (output,) = onnx.shape_inference.infer_shapes(proto, strict_mode=True).graph.output
        assert output.type.tensor_type.shape.dim[0].dim_value == 1, number


def test_architectures_differ() -> None:
    assert len({architecture(number).SerializeToString() for number in range(30)}) == 30
