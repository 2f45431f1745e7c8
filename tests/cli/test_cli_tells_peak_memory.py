from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from commands import CommandResult, Here, environment
from decoder import Architecture, decoder, parameters, shapes
from factories import conv_net, one_node, save, value

from bricks.report.tables import size

# Runs a command, and says on standard error how much memory this process and its worker took.
RUN = """
import os, resource, sys
from bricks.cli import main
from hostile import peak_bytes
status = main.run(sys.argv[1:])
# Not by getrusage: what a process is started by counts there, too.
workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(peak_bytes(os.getpid()) + workers, file=sys.stderr)
sys.exit(status)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save(conv_net(), tmp_path, "conv.onnx")


def asked(of: Architecture, past: int, tmp_path: Path) -> list[object]:
    """The command for a decoder of which no file with weights exists."""
    path = save(decoder(of), tmp_path, "decoder.onnx")
    given = shapes(of, tokens=1, past=past)
    sizes = [f"--shape={name}={'x'.join(map(str, shape))}" for name, shape in given.items()]
    return ["predict", path, "--no-measure", "--json", *sizes]


def hold(done: CommandResult, of: Architecture, past: int, error: float) -> None:
    """Of its latency nothing is known, and all of its memory."""
    assert done.status == 1
    (row,) = done.json["models"]
    assert row["estimate_s"] is None
    assert row["memory"]["unknown"] == []
    weights = 4 * parameters(decoder(of))
    assert row["memory"]["weight_bytes"] == pytest.approx(weights, rel=error / 10)
    # Keys and values of past tokens come in, and with one more they go out.
    cached = 2 * of.layers * 4 * of.hidden * (2 * past + 1)
    assert row["memory"]["activation_bytes"] == pytest.approx(cached, rel=max(0.1, error))
    assert row["peak_bytes"] == pytest.approx(weights + cached, rel=error)


def test_a_decoder_without_weights_gets_an_answer(here: Here, tmp_path: Path) -> None:
    of = Architecture(layers=3, hidden=64, heads=4, inner=96, vocabulary=50, positions=64)
    # In so small a one, values other than the cache count too.
    hold(here(*asked(of, 48, tmp_path)), of, 48, 0.4)


@pytest.mark.slow
def test_a_decoder_of_7_billion_parameters_without_weights_gets_an_answer(tmp_path: Path) -> None:
    of = Architecture()
    words = [*asked(of, 512, tmp_path), "--cache", tmp_path / "cache"]
    run = subprocess.run(
        [sys.executable, "-c", RUN, *map(str, words)],
        capture_output=True, text=True, check=False, env=environment(),
        cwd=Path(__file__).parents[1] / "support",
    )  # fmt: skip
    hold(CommandResult(run.returncode, run.stdout, run.stderr), of, 512, 0.01)
    assert int(run.stderr.splitlines()[-1]) < 1 << 30  # what it took to find that out


def test_the_detailed_table_has_a_column_of_it(here: Here, path: Path) -> None:
    usual, detailed = (here("predict", path, *more) for more in ((), ("--all",)))
    assert "peak memory" not in usual.out
    _, _, head, row = detailed.out.splitlines()[:4]
    assert head.split()[-2:] == ["peak", "memory"]
    assert row.endswith("KiB")


@pytest.mark.parametrize(
    ("size_bytes", "told"),
    [(1023, "1023 B"), (10 << 10, "10.0 KiB"), (100 << 20, "100.0 MiB"), (3 << 40, "3072.0 GiB")],
)
def test_units_of_sizes_are_1024_of_the_one_below(size_bytes: int, told: str) -> None:
    assert size(size_bytes) == told


def test_what_it_does_not_include_makes_it_a_lower_bound(here: Here, tmp_path: Path) -> None:
    odd = one_node("Det", [value("x", [4, 64, 64])], [value("y", [4])])
    words = ("predict", save(odd, tmp_path, "odd.onnx"), "--no-measure", "--all")
    done = here(*words, runtime="onnxruntime")
    assert "≥" in done.out.splitlines()[3]
    assert "odd: the peak memory does not include the workspace of 1 Det." in done.out


def test_where_it_is_not_predicted_the_reason_is_told(here: Here, path: Path) -> None:
    words = ("predict", path, "--granularity", 2)
    (row,) = here(*words, "--json").json["models"]
    assert row["peak_bytes"] is None
    assert "granularity 2" in row["memory"]["reason"]
    assert row["estimate_s"] > 0
    assert "conv: no peak memory: memory follows from the graph" in here(*words, "--all").out


def test_explain_tells_its_parts(here: Here, path: Path) -> None:
    done = here("explain", path, "--json")
    (row,) = done.json["models"]
    assert row["peak_bytes"] > 0
    (line,) = (
        line for line in here("explain", path, "--all").out.splitlines() if "Peak memory" in line
    )
    for part in ("weights", "activations", "workspace", "runtime", "loading"):
        assert part in line


def test_there_is_none_of_a_model_that_cannot_be_read(here: Here) -> None:
    (row,) = here("predict", "none.onnx", "--json").json["models"]
    assert row["peak_bytes"] is None
    assert row["memory"]["weight_bytes"] is None
