from __future__ import annotations

from pathlib import Path

import pytest
from tiers import slow_but

from bricks import Bench
from bricks.reading.read import read_model
from bricks.zoo import ZooEntry, entries

# One of each framework and task.
SAMPLE = list({(entry.framework, entry.task): entry for entry in entries()}.values())
OTHERS = [entry for entry in entries() if entry not in SAMPLE]
# One of each exporter, and each that once fixed its batch in another way.
RUN = (
    *("resnet50", "shufflenet", "bert_mini", "swin", "wav2vec2"),
    *("gluon_mobilenet025", "gluon_shufflenet_v1", "gluon_ssd_300_mobilenet025"),
)


@pytest.mark.parametrize(
    "some", slow_but(lambda some: some is SAMPLE, [SAMPLE, OTHERS]), ids=["sample", "others"]
)
def test_a_model_can_be_read_with_another_batch(some: list[ZooEntry]) -> None:
    assert len(some) >= 9
    for entry in some:
        model = read_model(entry.path, batch=4)
        assert {type_.shape[0] for _, type_ in model.inputs} == {4}, entry.name


@pytest.mark.parametrize("name", slow_but(lambda name: name == "shufflenet", RUN))
def test_a_model_of_another_batch_really_runs(name: str, tmp_path: Path) -> None:
    with Bench(tmp_path, threads=1) as bench:
        verification = bench.verify(bench.read(name, batch=4))
    assert verification.exact
