from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tiers import slow_but

from bricks import Bench

# Of each framework and task some that are cut in different ways; `make zoo-check` takes all.
NAMES = (
    *("densenet121", "inception_v2", "shufflenet", "squeezenet"),
    *("gluon_mobilenetv3_small", "gluon_shufflenet_v2", "gluon_ssd_300_mobilenet025"),
    *("gluon_center_net_mobilenetv3_small", "gluon_monodepth2_posenet_resnet18"),
    *("gluon_fastscnn", "mx_espcn", "mx_face_landmarks"),
    *("bert_mini", "llama_tiny", "convnext", "swin", "levit", "mobilevit", "wav2vec2"),
)

# Those that a runtime optimises in different ways.
EACH_TIME = {"squeezenet", "bert_mini", "gluon_fastscnn", "wav2vec2"}


@pytest.fixture(
    scope="module", params=slow_but(lambda cut: cut == "executed", ["executed", "1", "4"])
)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    cache: Path = tmp_path_factory.mktemp("cache")
    with Bench(cache, granularity=request.param, threads=2) as made:
        yield made


@pytest.mark.parametrize("name", slow_but(EACH_TIME.__contains__, NAMES))
def test_shipped_models(bench: Bench, name: str) -> None:
    result = bench.verify(bench.read(name))
    assert result.difference.finite, "outputs that are not numbers prove nothing"
    if bench.workspace.options.granularity == "executed":
        assert result.exact
        assert result.difference.max_abs == 0.0
    else:
        assert result.difference.max_rel <= result.difference.tolerance == 1e-3
