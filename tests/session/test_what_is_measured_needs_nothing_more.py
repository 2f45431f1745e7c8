"""Where all is measured, commands start no worker, learn nothing and read no published file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Here, environment
from factories import conv_net, mlp, save

import bricks.session.workspace
from bricks import Bench
from bricks.analysis.publishing import Validated, publish
from bricks.compose.estimate import Estimate
from bricks.decompose.plan import Plan
from bricks.measure.supervisor import Supervisor
from bricks.samples.call_overhead import needed_by
from bricks.samples.measurement import Round
from bricks.store import Owner
from bricks.store.measurements import Measurements
from bricks.store.published_index import read_index
from bricks.system import fingerprint
from bricks.system.host_conditions import KERNELS, HostConditions

BIG = replace(fingerprint(), name="big")
WORDS = (
    ("measure",),
    ("measure", "--budget", "60"),
    ("measure", "--effort", "quick"),
    ("predict",),
    ("predict", "--effort", "quick"),
    ("compare",),
    ("compare", "--effort", "quick"),
)
HEAVY = ("scipy", "sklearn", "bricks.predict.predictor", "bricks.predict.planner")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(conv_net(), tmp_path_factory.mktemp("model"), "conv.onnx")


@pytest.fixture(scope="module")
def compared(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which all bricks of a model are measured, and the model."""
    cache = tmp_path_factory.mktemp("compared") / "cache"
    with Bench(cache, runtime="fake", threads=1) as bench:
        bench.compare([bench.read(model)])
    return cache


@pytest.fixture
def cache(compared: Path, here: Here) -> Path:
    return shutil.copytree(compared, here.cache, dirs_exist_ok=True)


def refuse(what: str) -> Callable[..., None]:
    def called(*_: object, **__: object) -> None:
        raise AssertionError(f"{what} although all is measured")

    return called


def test_no_worker_starts(
    here: Here, cache: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ask", "ask_afresh", "start"):
        monkeypatch.setattr(Supervisor, name, refuse("a worker starts"))
    for command, *options in WORDS:
        assert here(command, model, *options, "--threads", 1).status == 0


def test_measuring_again_decodes_no_round(
    here: Here, cache: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Measurements, "results", refuse("rounds are read"))
    for options in ((), ("--budget", 60), ("--effort", "quick")):
        done = here("measure", model, *options, "--threads", 1, "--json").json
        assert (done["new_bricks"], done["predicted_bricks"], done["unfinished"]) == (0, 0, 0)


def test_a_further_model_does_no_work_for_the_others(
    here: Here, cache: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = set[str]()
    results = Measurements.results

    def noted(known: Measurements, target: str, keys: list[str]) -> object:
        asked.update(keys)
        return results(known, target, keys)

    monkeypatch.setattr(Measurements, "results", noted)
    further = save(mlp(), tmp_path, "mlp.onnx")
    assert here("measure", model, further, "--threads", 1, "--json").json["new_bricks"] > 0
    with Bench(here.cache, runtime="fake", threads=1) as bench:
        old, new = (set(bench.decompose(bench.read(path)).plan.keys) for path in (model, further))
    assert asked & new
    assert not asked & (old - new)


def test_nothing_is_imported_that_learns(cache: Path, model: Path) -> None:
    fixed = [str(model), "--runtime", "fake", "--threads", "1", "--cache", str(cache)]
    program = (
        "import sys\n"
        "from bricks.cli.main import run\n"
        f"for command, *options in {WORDS}:\n"
        f"    assert run([command, *options, *{fixed}]) == 0\n"
        f"print(*(n for n in {HEAVY} if n in sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment()
    )
    assert (done.returncode, done.stderr.split()) == (0, [])


def test_no_published_file_is_read_though_conditions_differ(
    model: Path, compared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a system that others published too: its usual conditions are those of its own rounds."""
    monkeypatch.setattr(bricks.session.workspace, "fingerprint", lambda: BIG)
    with Bench(compared, runtime="fake", threads=1) as bench:
        validated = Validated.of(bench.workspace, bench.compare([bench.read(model)]))
    (place := tmp_path / "published").mkdir()
    publish(compared, [validated], place)
    (entry,) = read_index(place)
    (place / entry.file).write_bytes(b"damaged")
    monkeypatch.setenv("BRICKS_PUBLISHED", str(place))
    with Bench(tmp_path / "cache", runtime="fake", threads=1, published=False) as bench:
        _keep(bench, bench.decompose(bench.read(model)).plan)
    with Bench(tmp_path / "cache", runtime="fake", threads=1) as bench:
        estimate = bench.predict(bench.read(model), measure=False)
        assert isinstance(estimate, Estimate)
        watched = bench.store.measurements.watched(bench.target.key)
        runs = sum(bench.decompose(bench.read(model)).plan.counts.values())
    assert len(watched) == 12
    usual_s = watched[0].by_kernel["exchange"]  # as all kernels, in each second
    others_s, last_s = (1e-3 * (usual_s / kernel_s) ** 0.9 for kernel_s in (1e-3, 2e-3))
    assert estimate.estimate_s == pytest.approx((runs - 1) * others_s + last_s, rel=1e-3)
    assert bench.workspace.published.problems == []


def _keep(bench: Bench, plan: Plan) -> None:
    """Rounds of all that ``plan`` needs, of its last brick in other conditions."""
    keys, owner, target = list(dict.fromkeys(needed_by(plan))), Owner.current(), bench.target.key
    bench.store.systems.save_target(bench.target)
    bench.store.claims.claim(target, keys, owner)
    for second in range(12):
        rounds = {
            key: (_round(key in plan.keys, second, 2e-3 if key == plan.keys[-1] else 1e-3), 0.1)
            for key in keys
        }
        bench.store.claims.append_rounds(target, rounds, owner)
    bench.store.claims.finish(target, keys, owner)


def _round(brick: bool, second: int, kernel_s: float) -> Round:
    """A round of a brick, or of a call, which takes a thousandth of it."""
    host = HostConditions((kernel_s,) * len(KERNELS), second)
    return Round((1e-3 if brick else 1e-6,), host, 0.0)
