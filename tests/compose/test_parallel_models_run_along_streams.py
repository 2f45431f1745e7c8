import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT, Here
from factories import branches, save
from refusals import refused

import bricks
from bricks import backends
from bricks.backends.fake.backend import CALL_OVERHEAD_S, node_latency_s
from bricks.cli.options import MAX_WORKERS as MAX_ON_THE_COMMAND_LINE
from bricks.cli.reading import warn_of_crowding
from bricks.decompose.plan import streams_of, whole_key
from bricks.session.options import MAX_WORKERS

# No latency is looked at: others may measure meanwhile.
QUICK = bricks.Conditions(rule=bricks.StopRule(min_rounds=2, max_rounds=2), exclusive=False)


@pytest.fixture(scope="module")
def diamond(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(branches(), tmp_path_factory.mktemp("models"), "diamond.onnx")


def test_an_estimate_is_what_a_run_of_several_workers_takes(diamond: Path, tmp_path: Path) -> None:
    """The fake runtime's run and the estimate's schedule are written independently."""
    with bricks.Bench(tmp_path / "cache", runtime="fake", workers=2) as bench:
        of = bench.read(diamond)
        plan = bench.decompose(of).plan
        (row,) = bench.compare([of]).rows
    assert isinstance(row, bricks.ModelComparison)
    a, b0, b, c0, c, y = (node_latency_s(o.brick) for o in plan.occurrences)
    expected = CALL_OVERHEAD_S + a + max(b0 + b, c0 + c) + y
    assert row.measured_s.value == pytest.approx(expected, rel=0.005)
    assert row.estimate.estimate_s == pytest.approx(expected, rel=0.02)
    assert row.estimate.low_s <= row.measured_s.value <= row.estimate.high_s


def test_workers_share_the_bricks_and_not_the_whole_models(diamond: Path, tmp_path: Path) -> None:
    found = {}
    for workers in (1, 2, 1, 2):
        with bricks.Bench(tmp_path / "cache", runtime="fake", workers=workers) as bench:
            of = bench.read(diamond)
            done = bench.compare([of])
            (row,) = done.rows
            assert isinstance(row, bricks.ModelComparison)
            first = workers not in found
            assert row.new_bricks == (0 if found else len(row.plan.keys))
            assert done.new_models == (1 if first else 0)
            assert found.setdefault(workers, row.measured_s) == row.measured_s
            targets = len(bench.store.systems.targets())
    assert found[2].value < found[1].value
    assert targets == 1


def test_a_rule_makes_an_estimate_longer_and_measures_nothing(
    here: Here, diamond: Path, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text("def never(first, second):\n    return False\n", encoding="utf-8")
    words = ("predict", diamond, "--json", "--workers")
    one, two = here(*words, 1).json, here(*words, 2).json
    assert two["workers"] == 2
    ruled = here(*words, 2, "--overlap-rule", f"{rules}:never", "--no-measure").json
    sequential, parallel, apart = (f["models"][0]["estimate_s"] for f in (one, two, ruled))
    assert parallel < sequential
    assert apart == pytest.approx(sequential)


def test_a_rule_that_is_none_is_wrong_usage(here: Here, diamond: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text("LIMIT = 1\ndef silent(first, second):\n    pass\n", encoding="utf-8")
    for rule, said in (
        ("never", "names no rule"),
        (f"{rules}:nothing", f"nothing is nothing in {rules}, not a function"),
        (f"{rules}:LIMIT", f"LIMIT is a int in {rules}, not a function"),
        (f"{rules}.py:never", "cannot be loaded (FileNotFoundError"),
        ("no_such_module:never", "cannot be loaded (ModuleNotFoundError"),
        (f"{rules}:silent", "overlap rule silent answered None for occurrences"),
    ):
        done = here("predict", diamond, "--workers", 2, "--overlap-rule", rule)
        assert said in done.complaint, rule


def test_several_workers_need_executed_nodes(here: Here, diamond: Path) -> None:
    for command in ("predict", "compare"):
        done = here(command, diamond, "--workers", 2, "--granularity", 2)
        assert done.status == 2, command
        assert "give --granularity executed" in done.complaint, command


def test_a_runtime_that_runs_one_node_at_a_time_has_one_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def describe(name: str, device: str, python: str | None) -> backends.BackendInfo:
        return backends.BackendInfo(name, "1", "none", timed=False)

    monkeypatch.setattr(backends, "describe", describe)
    with refused(bricks.UsageError, "fake", "--workers 1"):
        bricks.Bench(tmp_path / "cache", runtime="fake", workers=2)


def test_as_many_workers_as_can_be_had(here: Here, diamond: Path, tmp_path: Path) -> None:
    assert MAX_ON_THE_COMMAND_LINE == MAX_WORKERS
    assert here("predict", diamond, "--workers", MAX_WORKERS).status == 0
    for workers in (0, MAX_WORKERS + 1):
        assert here("predict", diamond, "--workers", workers).status == 2
        with refused(bricks.UsageError, workers, MAX_WORKERS):
            bricks.Bench(tmp_path / "other", runtime="fake", workers=workers)


@pytest.mark.slow
def test_the_runtime_runs_streams_side_by_side_and_measures_them_once(tmp_path: Path) -> None:
    path = save(branches(width=24), tmp_path)
    changes = {"threads": 1, "workers": 2, "conditions": QUICK}
    with bricks.Bench(tmp_path / "cache", **changes) as bench:
        of = bench.read(path)
        first, second = bench.compare([of]), bench.compare([of])
        decomposition = bench.decompose(of)
        streams = streams_of(decomposition.plan, decomposition.bricks, 2)
        keys = [whole_key(decomposition.plan, streams, 2), decomposition.plan.digest]
        kept = bench.store.measurements.results(bench.target.key, keys)
    assert len(set(streams)) == 2
    (row,), (again,) = first.rows, second.rows
    assert isinstance(row, bricks.ModelComparison), row
    assert isinstance(again, bricks.ModelComparison)
    assert row.measured_s == again.measured_s
    assert (first.new_models, second.new_models, second.rounds) == (1, 0, 0)
    assert list(kept) == keys[:1]
    assert 0 < row.estimate.critical_path_s <= row.estimate.estimate_s


@pytest.mark.parametrize(("processors", "warned"), [(2, True), (2.5, True), (3, False)])
def test_too_few_processors_for_the_workers_are_noticed(
    processors: float, warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    system = bricks.System("small-host", {"logical_cpus": 4, "cpu_quota": processors}, {})
    runtime = bricks.Runtime("onnxruntime", "1", "CPUExecutionProvider", 1, "none")
    warn_of_crowding(bricks.Target(system, runtime), 1)
    assert capsys.readouterr().err == ""
    warn_of_crowding(bricks.Target(system, runtime), 2)
    err = capsys.readouterr().err
    assert bool(err) == warned
    assert ("need 3 processors" in err) == warned


COMPUTED = """
import numpy as np
from factories import branches

from bricks import BackendError
from bricks.backends import create
from bricks.backends.onnxruntime.sessions import create_parallel_session
from bricks.backends.onnxruntime.sessions import session_options

proto = branches(width=2)
backend = create("onnxruntime", threads=1, seed=0, workers=2)
feed = {"x": np.linspace(-1, 1, 16 * 32, dtype=np.float32).reshape(16, 32)}
(expected,) = backend.evaluate(proto, {}, feed, optimize=True)
executed, weights = backend.materialised(proto, {})
count = len(executed.proto.graph.node)
for streams in ([0] * count, list(range(count)), [7 * (i % 2) for i in range(count)]):
    session = create_parallel_session(executed.proto, weights, streams, session_options("none"))
    print(*(np.array_equal(session.run(None, feed)[0], expected) for _ in range(3)))
try:
    create_parallel_session(executed.proto, weights, [0, 1], session_options("none"))
except BackendError as error:
    print(error)
"""


def test_streams_compute_what_the_model_computes() -> None:
    """However nodes are divided, with the weights that the executed graph really has."""
    # In a process of its own: a backend sets up the threads of all of its process.
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    done = subprocess.run(
        [sys.executable, "-c", COMPUTED],
        capture_output=True, text=True, check=True, env=dict(os.environ, PYTHONPATH=paths),
    )  # fmt: skip
    *equal, refused = done.stdout.splitlines()
    assert equal == ["True True True"] * 3
    assert "nodes where 2 were planned" in refused


ORDERED = """
import json

from bricks import Bench
from bricks.backends import create
from bricks.decompose.plan import streams_of
from bricks.graph.view import parse_model

with Bench("cache", threads=1) as bench:
    model = bench.read("inception_v1")
    found = bench.decompose(model)
streams = streams_of(found.plan, found.bricks, 2)
backend = create("onnxruntime", threads=1, seed=0, workers=2)
profiled = backend.profiled(parse_model(model.skeleton), key="net", streams=streams)
profiled.sample()
with open(profiled._session.end_profiling()) as file:
    events = [e for e in json.load(file) if e["name"].endswith("_kernel_time")]
events.sort(key=lambda event: event["ts"])
ran = [int(event["name"].removesuffix("_kernel_time")) for event in events]
for stream in (0, 1):
    of_stream = [position for position in ran if streams[position] == stream]
    planned = [position for position in range(len(streams)) if streams[position] == stream]
    print("as planned", of_stream == planned)
"""


@pytest.mark.slow
def test_streams_run_the_nodes_of_the_plan_in_its_order(tmp_path: Path) -> None:
    """By default the runtime finds another order for a graph that it has optimised itself."""
    done = subprocess.run(
        [sys.executable, "-c", ORDERED], cwd=tmp_path,
        capture_output=True, text=True, check=True, env=dict(os.environ, PYTHONPATH=str(ROOT)),
    )  # fmt: skip
    assert done.stdout.splitlines()[-2:] == ["as planned True"] * 2
