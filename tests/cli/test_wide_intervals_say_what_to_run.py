"""An estimate whose interval is wide says why, and a command that can be pasted narrows it."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import CommandResult, Here, chain
from factories import mlp, model, node, save, value
from rough import ROUGH

import bricks
from bricks.samples.call_overhead import LONG, PROBES, SHORT
from bricks.samples.measurement import Round
from bricks.store import Owner
from bricks.system.host_conditions import KERNELS, HostConditions

ONES = ("Relu", "Sigmoid", "Tanh", "Exp", "Neg", "Abs")
OTHERS = ("Sqrt", "Erf", "Floor", "Ceil", "Sin", "Cos")
SCATTERED = (1e-4, 2e-4, 4e-4)
USUAL, SLOW = (HostConditions((s,) * len(KERNELS)) for s in (1e-4, 4e-3))
ALL = (*ONES, *OTHERS, "Softplus", "Softsign", "Elu", "Selu", "Round", "Sign")
SOURCES = {
    "predicted_s", "conditions_s", "other_host_s", "samples_s", "calls_s", "launching_s",
    "recomposition_s", "workers_s",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Files that commands name may be relative, as people type them."""
    monkeypatch.chdir(tmp_path)


def row(done: CommandResult) -> dict[str, Any]:
    (found,) = done.json["models"]
    assert isinstance(found, dict)
    return found


def half_width(facts: dict[str, Any]) -> float:
    width: float = (facts["high_s"] - facts["low_s"]) / 2 / facts["estimate_s"]
    return width


def pasted(here: Here, advice: str) -> CommandResult:
    """Runs the command that a sentence ends with."""
    program, *words = shlex.split(advice.rpartition(": ")[2])
    assert program == "bricks"
    return here.plain(*words, "--json")


def given(
    cache: Path, path: Path, rounds: Callable[[int], list[Round]], call_s: float, **options: Any
) -> None:
    """A cache in which each brick of a model has these rounds, by its number; and it has them all.

    The model comes last.
    """
    with bricks.Bench(cache, runtime="fake", **options) as bench:
        plan = bench.decompose(bench.read(path)).plan
        keys = [*plan.keys, plan.digest]
        taken = dict(zip(keys, map(rounds, range(len(keys))), strict=True))
        taken |= {PROBES[n]: [Round((call_s + n * 1e-7,))] * 8 for n in (SHORT, LONG)}
        owner, target = Owner.current(), bench.target.key
        bench.store.claims.claim(target, sorted(taken), owner)
        for number in range(max(map(len, taken.values()))):
            walk = {key: (of[number], 0.1) for key, of in taken.items() if number < len(of)}
            bench.store.claims.append_rounds(target, walk, owner)
        bench.store.claims.finish(target, sorted(taken), owner)


def half_scattered(folder: Path, **options: Any) -> Path:
    """A model of whose bricks one half was sampled well, and the other half seldom, with scatter.

    It and its first half are files in ``folder``, ``folder / "cache"`` is the cache.
    """
    both = save(chain(*ONES, *OTHERS), folder, "both.onnx")
    ones = save(chain(*ONES), folder, "ones.onnx")
    well, badly = [Round((1e-5,))] * 8, [Round((s,)) for s in SCATTERED]
    given(folder / "cache", both, lambda i: badly if i >= len(ONES) else well, 2e-7, **options)
    with bricks.Bench(folder / "cache", runtime="fake", **options) as bench:
        bench.decompose(bench.read(ones))
    return both


@pytest.fixture(scope="module")
def scattered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return half_scattered(tmp_path_factory.mktemp("scattered")).parent


@pytest.fixture
def both(scattered: Path, tmp_path: Path) -> Path:
    """A copy of all that :func:`half_scattered` makes."""
    shutil.copytree(scattered, tmp_path, dirs_exist_ok=True)
    return tmp_path / "both.onnx"


@pytest.fixture(scope="module")
def teaching(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that knows enough bricks to predict others."""
    folder = tmp_path_factory.mktemp("teaching")
    paths = [save(chain(*ALL, width=n), folder, f"{n}.onnx") for n in (64, 65, 66)]
    with bricks.Bench(folder / "cache", runtime="fake", conditions=ROUGH) as bench:
        bench.measure([*map(bench.read, paths)])
    return folder / "cache"


def test_a_narrow_interval_says_nothing(here: Here, tmp_path: Path) -> None:
    found = row(here("predict", save(mlp(), tmp_path, "mlp.onnx"), "--json"))
    assert half_width(found) < 0.25
    assert found["advice"] is None
    assert found["uncertainty"].keys() == SOURCES
    assert sum(found["uncertainty"].values()) == pytest.approx(
        half_width(found) * found["estimate_s"]
    )
    assert "narrow" not in here("predict", "mlp.onnx").out


def test_predicted_bricks_are_to_be_measured(here: Here, teaching: Path, tmp_path: Path) -> None:
    shutil.copytree(teaching, here.cache)
    save(chain(*ALL, width=80), tmp_path, "new.onnx")
    words = ("predict", "new.onnx", "--no-measure", "--effort", "quick", "--budget", 9)
    found = row(here(*words, "--json"))
    assert half_width(found) > 0.25
    assert "100.0 % of the estimate is predicted from bricks of other models" in found["advice"]
    assert "To narrow it, measure these bricks: bricks predict new.onnx " in found["advice"]
    assert not {"--no-measure", "--effort", "--budget"} & set(shlex.split(found["advice"]))
    shown = here(*words).out
    assert found["advice"] in shown
    assert shown.count("is predicted") == 1
    after = row(pasted(here, found["advice"]))
    assert half_width(after) < 0.25
    assert after["advice"] is None


def test_a_host_whose_speed_changes_is_named(here: Here, tmp_path: Path) -> None:
    """Half of the bricks were measured while all kernels took forty times as long."""
    path = save(chain(*ONES), tmp_path, "ones.onnx")
    hosts = (USUAL, SLOW)
    given(here.cache, path, lambda i: [Round((1e-4,), hosts[i % 2])] * 8, 1e-6)
    found = row(here("predict", path, "--json"))
    assert half_width(found) > 0.25
    assert "because the speed of this host changes from minute to minute" in found["advice"]
    assert found["uncertainty"]["conditions_s"] == max(found["uncertainty"].values())
    run = "At another time no answer is closer; for the next seconds: bricks predict"
    assert run in found["advice"] and found["advice"].endswith(" --now")
    now = row(pasted(here, found["advice"]))
    assert now["usual_s"] > 0
    assert now["advice"] is None or "--now" not in now["advice"]


def test_scattered_samples_are_to_be_taken_while_nothing_else_runs(
    here: Here, tmp_path: Path
) -> None:
    path = save(chain(*ONES), tmp_path, "ones.onnx")
    given(here.cache, path, lambda i: [Round((s,)) for s in SCATTERED], 1e-6)
    found = row(here("predict", path, "--precision", 0.2, "--json"))
    assert half_width(found) > 0.25
    assert "because samples of bricks are few, or differ much" in found["advice"]
    assert "further rounds while nothing else runs: bricks predict" in found["advice"]
    assert "--precision" not in found["advice"]
    after = row(pasted(here, found["advice"]))
    assert half_width(after) < half_width(found)
    assert after["uncertainty"]["samples_s"] / after["estimate_s"] < (
        found["uncertainty"]["samples_s"] / found["estimate_s"]
    )


def test_calls_that_take_as_long_as_bricks_can_only_be_avoided(here: Here, tmp_path: Path) -> None:
    path = save(chain(*ONES), tmp_path, "ones.onnx")
    given(here.cache, path, lambda i: [Round((4e-6,))] * 8, 2e-6)
    found = row(here("predict", path, "--json"))
    assert half_width(found) > 0.25
    assert "bricks take little longer than a call of the runtime" in found["advice"]
    assert (
        "No measurement of bricks narrows it; run the whole model: bricks compare"
        in (found["advice"])
    )
    assert row(pasted(here, found["advice"]))["measured_latency_s"] > 0


def forked() -> Any:
    """Two chains of equal bricks side by side."""
    sides = [[node("Exp", ["x"], [f"a{i}"]), node("Tanh", [f"a{i}"], [f"b{i}"])] for i in (0, 1)]
    joined = node("Add", ["b0", "b1"], ["y"])
    shape = [1, 64]
    return model([*sides[0], *sides[1], joined], [value("x", shape)], [value("y", shape)])


def test_with_workers_nothing_narrows_it(here: Here, tmp_path: Path) -> None:
    path = save(forked(), tmp_path, "forked.onnx")
    found = row(here("predict", path, "--workers", 2, "--json"))
    assert half_width(found) > 0.25
    assert "interference between bricks that run at the same time is not" in found["advice"]
    assert found["advice"].rpartition(": ")[2].startswith("bricks compare ")
    assert "--workers 2" in found["advice"]
    compared = row(here("compare", path, "--workers", 2, "--json"))
    assert compared["advice"].endswith("No measurement of bricks narrows it.")


def test_compare_says_it_too(here: Here, tmp_path: Path) -> None:
    path = save(chain(*ONES), tmp_path, "ones.onnx")
    given(here.cache, path, lambda i: [Round((s,)) for s in SCATTERED], 1e-6)
    found = row(here("compare", path, "--json"))
    assert half_width(found) > 0.25
    assert "further rounds while nothing else runs: bricks compare " in found["advice"]
    assert found["advice"] in here("compare", path).out
    after = row(pasted(here, found["advice"]))
    assert half_width(after) < half_width(found)


def test_compare_corrects_bricks_to_the_conditions_of_the_run(here: Here, tmp_path: Path) -> None:
    """The model was run while all kernels took forty times as long as with its bricks."""
    path = save(chain(*ONES), tmp_path, "ones.onnx")
    run_s = 6 * 1e-4 * 40**0.9
    given(
        here.cache,
        path,
        lambda i: [Round((1e-4,), USUAL) if i < 6 else Round((run_s,), SLOW)] * 8,
        2e-7,
    )
    found = row(here("compare", path, "--json"))
    assert found["ratio"] == pytest.approx(1, rel=0.02)
    assert half_width(found) > 0.25
    assert found["uncertainty"]["conditions_s"] == max(found["uncertainty"].values())
    assert found["advice"].endswith("No measurement of bricks narrows it.")


def test_explain_says_it_too(here: Here, both: Path) -> None:
    found = row(here("explain", both, "--no-measure", "--json"))
    assert "further rounds while nothing else runs: bricks explain" in found["advice"]
    assert found["advice"] in here("explain", both, "--no-measure").out


def test_a_report_says_what_measures(here: Here, both: Path, tmp_path: Path) -> None:
    done = here("report", both, "--out", tmp_path / "r.html", "--json")
    (shown,) = done.json["targets"][0]["models"]
    assert "further rounds while nothing else runs: bricks measure " in shown["advice"]
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "few or noisy samples</th>" in page
    assert pasted(here, shown["advice"]).status == 0


@pytest.mark.slow
def test_a_report_gives_no_command_for_a_file_that_it_does_not_know(
    here: Here, both: Path, tmp_path: Path
) -> None:
    done = here("report", "--out", tmp_path / "r.html", "--json")
    rows = {each["model"]: each for each in done.json["targets"][0]["models"]}
    assert rows["both"]["advice"].endswith("measure further rounds while nothing else runs.")
    assert rows["ones"]["advice"] is None


def test_many_models_with_one_reason_share_a_line_and_a_command(
    here: Here, teaching: Path, tmp_path: Path
) -> None:
    shutil.copytree(teaching, here.cache)
    new = [save(chain(*ALL, width=80 + i), tmp_path, f"new {i}.onnx") for i in range(5)]
    done = here("predict", *new, "--no-measure", "--json")
    assert all(half_width(each) > 0.25 for each in done.json["models"])
    lines = here("predict", *new, "--no-measure").out.splitlines()
    (line,) = (each for each in lines if "To narrow it" in each)
    assert line.startswith("5 estimates (new 0, new 1, new 2, …): the intervals are ")
    after = pasted(here, line)
    assert [each["model"] for each in after.json["models"]] == [path.stem for path in new]
    assert all(half_width(each) < 0.25 for each in after.json["models"])


def test_another_system_is_to_measure_it_there(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    import bricks.session.workspace
    from bricks.system import fingerprint

    home = fingerprint()
    away = replace(home, name="away", identity={**home.identity, "logical_cpus": 97})
    monkeypatch.setattr(bricks.session.workspace, "fingerprint", lambda: away)
    both = half_scattered(tmp_path, threads=1)
    monkeypatch.setattr(bricks.session.workspace, "fingerprint", lambda: home)
    words = ("predict", both, "--on", "away", "--workers", 2)
    found = row(here(*words, "--json"))
    assert "further rounds while nothing else runs on away: bricks measure " in found["advice"]
    assert "--workers" not in found["advice"]
    assert str(here.cache) not in found["advice"]  # it is here, and not there


def test_a_path_that_a_shell_would_split_is_quoted(here: Here, both: Path, tmp_path: Path) -> None:
    moved = both.rename(tmp_path / "both & more.onnx")
    found = row(here("predict", moved, "--json"))
    assert shlex.quote(str(moved)) in found["advice"]
    assert half_width(row(pasted(here, found["advice"]))) < half_width(found)


def test_a_folder_of_models_is_not_the_word_for_one_of_them(
    here: Here, both: Path, tmp_path: Path
) -> None:
    rows = here("predict", tmp_path, "--json").json["models"]
    advice = {each["model"]: each["advice"] for each in rows}
    assert advice["ones"] is None
    assert f"bricks predict {both} " in advice["both"]
