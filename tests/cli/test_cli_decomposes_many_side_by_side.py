from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from commands import Here, chain
from factories import save

from bricks.graph.model import Model
from bricks.session import batch
from bricks.session.workspace import Workspace


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The models, by name, that were decomposed side by side."""
    calls: list[list[str]] = []
    decompose_all = batch.decompose_all

    def noted(workspace: Workspace, models: Sequence[Model]) -> None:
        calls.append([model.name for model in models])
        if len(calls) == 1:  # once for all commands: processes take long to start
            decompose_all(workspace, models, processes=2)
            assert all(map(workspace.plans.knows, models))

    monkeypatch.setattr(batch, "decompose_all", noted)
    return calls


def test_several_models_are_decomposed_side_by_side(
    here: Here, tmp_path: Path, asked: list[list[str]]
) -> None:
    paths = [
        save(chain("Relu"), tmp_path, "a.onnx"),
        save(chain("Relu", "Tanh"), tmp_path, "b.onnx"),
    ]
    for words in ("decompose", "measure", "predict", "compare", "zoo coverage"):
        asked_before = len(asked)
        # One cannot be read.
        assert here(*words.split(), *paths, tmp_path / "none.onnx").status == 1, words
        assert asked[asked_before:] == [["a", "b"]], words


def test_one_model_is_no_matter_for_several_processes(
    here: Here, tmp_path: Path, asked: list[list[str]]
) -> None:
    assert here("decompose", save(chain("Relu"), tmp_path, "a.onnx")).status == 0
    assert asked == []
