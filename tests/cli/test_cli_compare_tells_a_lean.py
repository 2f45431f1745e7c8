"""Where estimates are summed up, the geometric mean of ratios tells to which side they lean."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Here
from factories import conv_net, mlp, save


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    return [save(conv_net(), tmp_path, "conv.onnx"), save(mlp(), tmp_path, "dense.onnx")]


def test_the_terminal_tells_the_mean_that_json_has(here: Here, models: list[Path]) -> None:
    facts = here("compare", *models, "--json").json
    told = here("compare", *models).out
    below = told.rpartition("\ndense ")[2].partition("\n")[2]
    assert f" {facts['summary']['geomean_ratio']:.3f}" in below


def test_the_report_tells_the_mean_that_json_has(
    here: Here, models: list[Path], tmp_path: Path
) -> None:
    here("compare", *models)
    page = tmp_path / "report.html"
    (target,) = here("report", "--out", page, "--json").json["targets"]
    text = page.read_text(encoding="utf-8")
    assert f"estimate over run is {target['summary']['geomean_ratio']:.3f}." in text
