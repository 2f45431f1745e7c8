from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from commands import chain
from factories import model, node, save, value
from fork_server import children
from onnx import TensorProto

from bricks import Bench, Options
from bricks.backends.onnxruntime.synthetic_data import SyntheticData
from bricks.graph.synthesis import Pool
from bricks.measure.conditions import Conditions, StopRule
from bricks.measure.protocol.walking import LoadPieces, MakeRegion, UnloadAll
from bricks.measure.supervisor import Supervisor, WorkerSettings
from bricks.studies.inference.result import ComparisonFailure, ModelComparison

QUICK = Conditions(rule=StopRule(min_rounds=2, max_rounds=2))
MIB = 1 << 20
LAYERS = 3


def wide(folder: Path, width: int, rows: int = 2) -> Path:
    """Matrix products with large weights, whose values are nowhere."""
    weights = [
        TensorProto(
            name=f"w{i}",
            data_type=TensorProto.FLOAT,
            dims=[width, width],
            data_location=TensorProto.EXTERNAL,
            external_data=[onnx.StringStringEntryProto(key="location", value="none.weights")],
        )
        for i in range(LAYERS)
    ]
    nodes = [node("MatMul", [f"v{i}", f"w{i}"], [f"v{i + 1}"]) for i in range(LAYERS)]
    proto = model(nodes, [value("v0", [rows, width])], [value(f"v{LAYERS}", [rows, width])])
    proto.graph.initializer.extend(weights)
    return save(proto, folder, "wide.onnx")


# Elsewhere nothing tells a process's peak so that it can be compared with the limit.
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_a_model_and_its_bricks_take_twice_its_weights(tmp_path: Path) -> None:
    with Bench(tmp_path / "cache", threads=1, conditions=QUICK) as bench:
        done = bench.compare([bench.read(wide(tmp_path, width=4096))])
        (worker,) = children()
        status = Path(f"/proc/{worker.pid}/status").read_text(encoding="ascii")
    assert isinstance(done.rows[0], ModelComparison)
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    assert int(peak) * 1024 < 2 * LAYERS * 64 * MIB + 512 * MIB


def test_the_limit_follows_the_heaviest_model_and_what_is_asked_for(tmp_path: Path) -> None:
    path = wide(tmp_path, width=1024)
    limits: dict[int | None, set[int | None]] = {}
    for asked in (None, 700 * MIB):
        cache = tmp_path / f"cache-{asked}"
        met = limits.setdefault(asked, set())
        opened: list[Bench] = []

        def look(
            what: str, share: float, met: set[int | None] = met, opened: list[Bench] = opened
        ) -> None:
            met.update(bench.workspace.supervisor._memory_bytes for bench in opened)

        options = Options(threads=1, conditions=QUICK, memory_bytes=asked)
        with Bench(cache, options, progress=look) as bench:
            opened.append(bench)
            supervisor = bench.workspace.supervisor
            at_first = supervisor._memory_bytes
            bench.compare([bench.read(path, batch=2)])
            assert supervisor._memory_bytes == at_first  # other models follow
            (worker,) = children()
            assert worker.rlimit(psutil.RLIMIT_DATA)[0] == at_first
            met.discard(at_first)
    # The same brick three times, and one weight more while it is packed; sessions take a little.
    (limit,) = limits[None]
    assert limit is not None
    assert 0 < limit - (2 * 4 * MIB * (LAYERS + 1) + 1024 * MIB) < MIB
    assert limits[700 * MIB] == set()


def test_a_lack_of_memory_is_not_blamed_on_another_batch_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_FAKE_FAULTS", "Relu+Neg=memory")
    with Bench(tmp_path / "c", runtime="fake", conditions=QUICK) as bench:
        (row,) = bench.compare([bench.read(chain("Relu", "Neg"), batch=4)]).rows
    assert isinstance(row, ComparisonFailure)
    assert "out of memory" in row.error
    assert "batch size" not in row.error


@pytest.mark.slow
def test_a_lack_of_memory_that_onnxruntime_meets_is_not_blamed_on_it_either(tmp_path: Path) -> None:
    path = wide(tmp_path, width=4096, rows=1)
    with Bench(tmp_path / "c", threads=1, conditions=QUICK, memory_bytes=300 * MIB) as bench:
        (row,) = bench.compare([bench.read(path, batch=4)]).rows
    assert isinstance(row, ComparisonFailure)
    assert "memory" in row.error
    assert "batch size" not in row.error


def test_large_weights_of_one_session_share_memory_and_differ() -> None:
    """Of equal ones the runtime keeps a single prepacked copy: models would seem too fast."""
    weights = [
        onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=[512, 1024])
        for name in ("one", "other")
    ]
    for weight in weights:
        weight.data_location = onnx.TensorProto.EXTERNAL
    sums = [node("Add", ["one", "other"], ["y"])]
    proto = model(sums, [], [value("y", [512, 1024])])
    proto.graph.initializer.extend(weights)
    made, _ = SyntheticData(Pool(0)).of(proto, "key", share=True)
    assert np.shares_memory(made["one"], made["other"])
    assert not np.array_equal(made["one"], made["other"])


def test_a_worker_that_holds_too_much_for_the_next_limit_is_replaced() -> None:
    """It would wait without end for a thread that has no memory to begin with."""
    with Supervisor(WorkerSettings("fake", 2, 0)) as supervisor:
        supervisor.ask(MakeRegion(900 * MIB), timeout_s=60)
        with supervisor.memory_limited(4096 * MIB):
            supervisor.ask(UnloadAll(), timeout_s=60)
        assert supervisor.starts == 1  # there is room enough
        with supervisor.memory_limited(1024 * MIB):
            assert supervisor.ask(LoadPieces(()), timeout_s=60) == ()
            supervisor.ask(UnloadAll(), timeout_s=60)
        assert supervisor.starts == 2
        with supervisor.memory_limited(1024 * MIB):
            supervisor.ask(UnloadAll(), timeout_s=60)
        assert supervisor.starts == 2  # the new one holds little
