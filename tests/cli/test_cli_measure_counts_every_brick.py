"""What ``bricks measure`` says became of the bricks: the parts add up to all of them."""

from pathlib import Path

import pytest
from commands import Here
from factories import conv_net, mlp, save

from bricks.api.bench import Bench
from bricks.store import Owner


@pytest.fixture
def conv(tmp_path: Path) -> Path:
    return save(conv_net(), tmp_path, "conv.onnx")


def bricks_of(here: Here, *models: Path) -> int:
    count: int = here("decompose", *models, "--json").json["union"]["bricks"]
    return count


def test_new_and_known_bricks_are_told_apart(here: Here, tmp_path: Path, conv: Path) -> None:
    mine, both = bricks_of(here, conv), bricks_of(here, conv, save(mlp(), tmp_path, "mlp.onnx"))
    done = here("measure", conv)
    assert done.out.startswith(f"All {mine} bricks of 1 model are measured: {mine} now (")
    done = here("measure", conv, tmp_path / "mlp.onnx")
    assert done.out.startswith(
        f"All {both} bricks of 2 models are measured: {both - mine} now, {mine} before ("
    )
    done = here("measure", conv)
    assert done.out.startswith(f"All {mine} bricks of 1 model are measured: {mine} before.")


def test_bricks_left_unfinished_are_not_called_known(here: Here, conv: Path) -> None:
    mine = bricks_of(here, conv)
    done = here("measure", conv, "--budget", 0)
    assert done.status == 1
    assert done.out.startswith(f"0 of {mine} bricks of 1 model are measured; {mine} unfinished.")
    assert f"the budget of 0.0 s ended with {mine} bricks unfinished" in done.complaint


def test_failed_bricks_are_neither_measured_nor_known(here: Here, conv: Path) -> None:
    mine = bricks_of(here, conv)
    with Bench(here.cache, runtime="fake") as bench:
        target, key = bench.target.key, bench.decompose(bench.read(conv)).plan.keys[0]
        owner = Owner.current()
        bench.store.claims.claim(target, [key], owner)
        bench.store.claims.fail(target, key, "too big", owner)
    done = here("measure", conv)
    assert done.status == 1
    assert done.out.startswith(
        f"{mine - 1} of {mine} bricks of 1 model are measured: {mine - 1} now ("
    )
    done = here("measure", conv)
    assert done.out.startswith(
        f"{mine - 1} of {mine} bricks of 1 model are measured: {mine - 1} before;"
    )
    assert done.out.splitlines()[0].endswith(" before; 1 failed.")
    assert "could not be measured: too big" in done.complaint
