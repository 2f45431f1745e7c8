from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from commands import environment
from decoder import Architecture, decoder, parameters, shapes
from factories import save

from bricks import Bench
from bricks.compose.estimate import IncompleteEstimate
from bricks.decompose.plan import Decomposition
from bricks.measure.conditions import Conditions, StopRule

SEVEN_BILLION = Architecture()
SMALL = Architecture(layers=3, hidden=64, heads=4, inner=96, vocabulary=50, positions=64)

ONCE = Conditions(rule=StopRule(min_rounds=1, max_rounds=1, passes=1), exclusive=False)

# Decomposes a model and says how much memory this process and its worker took at most.
DECOMPOSE = """
import json, resource, sys
from bricks import Bench
path, granularity, cache, shapes = sys.argv[1:]
with Bench(cache, granularity=granularity, threads=1) as bench:
    plan = bench.decompose(bench.read(path, shapes=json.loads(shapes))).plan
both = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
peaks = [resource.getrusage(who).ru_maxrss for who in both]
print(json.dumps({"peak_bytes": sum(peaks) * 1024, "occurrences": len(plan.occurrences)}))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    proto = decoder(SEVEN_BILLION)
    assert 6.5e9 < parameters(proto) < 7e9
    return save(proto, tmp_path_factory.mktemp("decoder"), "decoder.onnx")


@pytest.mark.parametrize("granularity", ["executed", "1", "5"])
@pytest.mark.parametrize(("tokens", "past"), [(1, 512), (128, 1)], ids=["decode", "prefill"])
@pytest.mark.slow
def test_a_decoder_of_7_billion_parameters_decomposes_in_little_memory(
    path: Path, granularity: str, tokens: int, past: int, tmp_path: Path
) -> None:
    given = json.dumps(shapes(SEVEN_BILLION, tokens, past))
    run = subprocess.run(
        [sys.executable, "-c", DECOMPOSE, str(path), granularity, str(tmp_path), given],
        capture_output=True, text=True, check=True, env=environment(),
    )  # fmt: skip
    facts = json.loads(run.stdout)
    assert facts["occurrences"] > 32 * 25
    assert facts["peak_bytes"] < 1.5 * 2**30


def decomposed(bench: Bench, path: Path, of: Architecture, tokens: int, past: int) -> Decomposition:
    return bench.decompose(bench.read(path, shapes=shapes(of, tokens, past)))


def test_its_32_layers_are_one_layers_bricks(path: Path, tmp_path: Path) -> None:
    with Bench(tmp_path / "cache", threads=1) as bench:
        found = decomposed(bench, path, SEVEN_BILLION, 1, 512)
        counts = Counter(found.plan.counts.values())
        assert found.weight_bytes == pytest.approx(4 * 6.74e9, rel=0.01)
        assert len(found.bricks) < 40
        # Once in each layer or more often; normalisation once more at the end. The rest is before.
        assert counts[32] >= 10
        assert all(n <= 2 or (n >= 32 and n % 32 <= 1) for n in found.plan.counts.values())
        prefill = decomposed(bench, path, SEVEN_BILLION, 128, 1)
        assert prefill.plan.digest != found.plan.digest
        assert len(prefill.bricks) < 40


@pytest.mark.slow
def test_what_fits_is_measured_and_what_does_not_is_a_named_gap(path: Path, tmp_path: Path) -> None:
    room = 900 << 20  # of the products, only that with the vocabulary takes more
    with Bench(tmp_path / "cache", threads=1, memory_bytes=room, conditions=ONCE) as bench:
        read = bench.read(path, shapes=shapes(SEVEN_BILLION, 1, 16))
        done = bench.measure([read])
        estimate = bench.predict(read, measure=False)
    assert 0 < len(done.failures) < done.bricks / 4
    assert all("memory" in failure.reason for failure in done.failures)
    assert isinstance(estimate, IncompleteEstimate)
    gaps = {gap.brick: gap for gap in estimate.gaps}
    assert gaps.keys() == {failure.key for failure in done.failures}
    assert all("memory" in gap.reason for gap in gaps.values())


def test_a_small_one_chains_exactly(tmp_path: Path) -> None:
    path = save(decoder(SMALL), tmp_path, "small.onnx")
    with Bench(tmp_path / "cache", threads=1) as bench:
        verified = bench.verify(bench.read(path, shapes=shapes(SMALL, 2, 5)))
    assert verified.exact
    assert verified.difference.finite
