"""Buckets compared with those of PyTorch's DistributedDataParallel after it has rebuilt them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch_environment
from refusals import refused
from tiers import one_in

from bricks import Bench, UsageError
from bricks.graph.call import TRAINING
from bricks.graph.program import MODULE, module_of, state_of
from bricks.graph.view import parse_model
from bricks.sources import Function, ReadOptions, read
from bricks.studies.scaling.training_step import (
    MIB,
    Gradient,
    assign,
    bucket_limits,
    module_tensors,
    ready_gradients,
)
from bricks.zoo import programs, zoo_folder

SCRIPT = Path(__file__).parents[2] / "support" / "ddp_buckets.py"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("scale") / "cache"
    with (
        torch_environment.one_recorder(),
        Bench(folder, runtime="torch", threads=1) as opened,
    ):
        yield opened


def ours(bench: Bench, entry: str, folder: str, cap_mb: float | None) -> list[list[str]]:
    model = Function(entry, folder).record(ReadOptions())
    made, _ = ready_gradients(model, bench.decompose(model).plan)
    found = [gradient for _, gradient in made]
    buckets = assign(found, bucket_limits(None if cap_mb is None else int(cap_mb * MIB)))
    return [[found[i].parameter for i in bucket.members] for bucket in buckets]


def ddps(entry: str, folder: str, cap_mb: float | None) -> list[list[str]]:
    cap = "default" if cap_mb is None else str(cap_mb)
    command = [str(torch_environment.python()), str(SCRIPT), folder, cap, entry]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found: list[list[str]] = json.loads(done.stdout)[entry]
    return found


TESTS, ZOO = str(torch_environment.PROGRAMS.parent), str(zoo_folder())


# Those that DDP makes of a small workload, as the slow test sees.
WORDS = "programs.py:words"
BUCKETS = [
    ["last.weight", "qkv.bias", "qkv.weight"],
    ["lstm.weight_ih_l0", "lstm.weight_hh_l0"],
    ["lstm.bias_hh_l0", "lstm.bias_ih_l0", "embedding.weight"],
]


def test_buckets_of_a_small_workload_are_those_that_ddp_makes(bench: Bench) -> None:
    assert ours(bench, WORDS, TESTS, 0.004) == BUCKETS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "folder", "cap_mb"),
    [
        (WORDS, TESTS, 0.004),
        ("torch/language_models.py:gpt2_training", ZOO, 0.5),
        ("torch/recommendation.py:dlrm_training", ZOO, None),
        ("torch/images.py:mobilenet_v3_training", ZOO, 0.2),
    ],
)
def test_buckets_are_those_that_ddp_makes_now(
    bench: Bench, entry: str, folder: str, cap_mb: float | None
) -> None:
    found = ours(bench, entry, folder, cap_mb)
    assert len(found) > 1
    assert found == ddps(entry, folder, cap_mb)
    assert entry != WORDS or found == BUCKETS


def test_a_bucket_that_holds_just_its_limit_is_full() -> None:
    made = assign([Gradient(name, 4, "float32") for name in "abcde"], (8,))
    assert [bucket.members for bucket in made] == [(0, 1), (2, 3), (4,)]


def test_what_ddp_refuses_is_refused(bench: Bench) -> None:
    model = Function("programs.py:partly_used", TESTS).record(ReadOptions())
    with refused(UsageError, "programs.py:partly_used", "spare.weight"):
        ready_gradients(model, bench.decompose(model).plan)
    still = Function("programs.py:convolutions", TESTS).record(ReadOptions())
    with refused(UsageError, "programs.py:convolutions"):
        ready_gradients(still, bench.decompose(still).plan)


def test_an_older_recording_still_opens_and_says_to_record_again(bench: Bench) -> None:
    model = Function("programs.py:momentum", TESTS).record(ReadOptions())
    found = module_tensors(model)
    assert found is not None and found.buffers_bytes["float32"] > 0
    proto = parse_model(model.skeleton)
    kept = [entry for entry in proto.metadata_props if entry.key != MODULE]
    del proto.metadata_props[:]
    proto.metadata_props.extend(kept)
    older = bench.read(proto, name="older")
    assert older.digest == model.digest
    assert module_tensors(older) is None
    with refused(UsageError, "older"):
        ready_gradients(older, bench.decompose(older).plan)


@pytest.mark.parametrize(
    "name", one_in(6, [program.name for program in programs() if program.kind == TRAINING])
)
def test_recorded_steps_of_the_zoo_need_no_new_recording(name: str) -> None:
    proto = parse_model(read(name, ReadOptions()).skeleton)
    tensors, state = module_of(proto), state_of(proto)
    assert tensors is not None and state is not None
    assert tensors.unused == ()
    assert len(tensors.parameters) == len(state.gradients) > 0
