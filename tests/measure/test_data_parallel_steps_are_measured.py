"""Real data-parallel steps: DDP that torchrun starts, beside solo steps of the same ranks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch_environment
from refusals import refused

from bricks.errors import WorkerError
from bricks.measure.conditions import StopRule
from bricks.measure.distributed_steps import measure_steps
from bricks.measure.ranks import loopback
from bricks.measure.supervisor import WorkerDied

FEW = StopRule(min_rounds=2, max_rounds=3, passes=1)

PROGRAM = """
import torch
from torch import nn

def training(batch=8):
    last = nn.Linear(512, 1024, bias=False)
    module = nn.Sequential(nn.Linear(64, 512), nn.BatchNorm1d(512), last)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    inputs = (torch.randn(batch, 64),)
    return {"module": module, "inputs": inputs, "loss": lambda y: y.square().mean(),
            "optimizer": optimizer}

def inference():
    return {"module": nn.Linear(2, 2), "inputs": (torch.randn(1, 2),)}

def dying():
    made = training()
    def loss(outputs):
        import os
        if os.environ["RANK"] == "1":
            os._exit(7)
        return outputs.mean()
    return {**made, "loss": loss}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch_environment.python()
    path = tmp_path_factory.mktemp("program") / "program.py"
    path.write_text(PROGRAM)
    return path


def of(program: Path, function: str) -> dict[str, object]:
    return {
        "entry": f"{program.name}:{function}", "folder": str(program.parent), "options": {},
    }  # fmt: skip


def left() -> bool:
    """Whether a process of a launcher is still there."""
    said = subprocess.run(["ps", "-eo", "ppid,args"], capture_output=True, text=True).stdout
    mine = [line for line in said.splitlines() if line.split()[0] == str(os.getpid())]
    return any("torch.distributed.run" in line for line in mine)


def test_steps_of_two_ranks(program: Path) -> None:
    steps = measure_steps(
        of(program, "training"), loopback(2), bucket_cap_mb=1.0, accumulation=2, rule=FEW,
        delays_s=(0.0, 0.2),
    )  # fmt: skip
    assert steps.ranks == 2 and len(steps.rounds) >= 2
    # The second rank computes longer in synchronised steps, and the first one waits for it.
    assert all(synchronised > 0.2 > solo for solo, synchronised in steps.rounds)
    assert not left()


@pytest.mark.slow
def test_an_inference_is_no_training(program: Path) -> None:
    with refused(WorkerError, "program.py:inference"):
        measure_steps(of(program, "inference"), loopback(2), rule=FEW)
    assert not left()


@pytest.mark.slow
def test_a_rank_that_dies_is_one_line(program: Path) -> None:
    with refused(WorkerDied, "rank 1 of 2"):
        measure_steps(of(program, "dying"), loopback(2), rule=FEW)
    assert not left()
