"""``bricks diff``: two targets of a cache, what became slower from one to the other, and in CI."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import CommandResult, Here, chain
from factories import conv_net, mlp, save
from plans import results
from rough import ROUGH
from store_examples import make_decomposition, make_target, open_with_target

from bricks import Bench, backends
from bricks.errors import printable
from bricks.samples.measurement import Failure, Measurement, Round
from bricks.session.options import Options
from bricks.store import Owner, Store
from bricks.system.host_conditions import KERNELS, HostConditions
from bricks.system.target import Target

OLD = make_target("lab")
NEW = Target(OLD.system, replace(OLD.runtime, version="2.0"))
PATTERN = (0.0, 0.01, -0.01, 0.02, -0.02, 0.01, -0.01, 0.0) * 2
KINDS = (1, 2, 1, 3)
FOREIGN = "a[bold]\x1b[31m.onnx"

DIFF = {
    "answer", "old", "new", "granularity", "common", "models", "incomparable", "only_old",
    "only_new", "bricks", "fail_on", "regressions", "agreements",
}  # fmt: skip
MODEL = {
    "model", "old_s", "new_s", "ratio", "low", "high", "beyond_noise", "predicted_share",
    "disturbed_share", "call_overhead_difference_s", "gone_s", "come_s", "contributions",
}  # fmt: skip
CONTRIBUTION = {
    "brick", "old_occurrences", "new_occurrences", "old_s", "new_s", "predicted", "operators",
    "difference_s", "replaced",
}  # fmt: skip
BRICK = {
    "brick", "operators", "old_s", "new_s", "ratio", "low", "high", "beyond_noise", "rounds",
    "models", "disturbed",
}  # fmt: skip

Diff = Callable[..., Any]


@pytest.fixture
def diff(here: Here) -> Diff:
    """``bricks diff`` on the tests' cache, with all details."""
    return lambda *words: here("diff", *words, "--all", runtime=None)


def take(
    store: Store,
    target: Target,
    latency_s: Mapping[str, float],
    waited_share: float = 0.0,
    host: HostConditions | None = None,
) -> None:
    """Keep measurements of many rounds in these conditions, and of the probes."""
    owner = Owner.current()
    probes = {k: m.latency_s for k, m in results({}).items() if isinstance(m, Measurement)}
    every = {
        **latency_s,
        **({} if store.measurements.results(target.key, list(probes)) else probes),
    }
    store.claims.claim(target.key, list(every), owner)
    for varied in PATTERN:
        walk = {k: (Round((s * (1 + varied),), host, waited_share), 0.1) for k, s in every.items()}
        store.claims.append_rounds(target.key, walk, owner)
    store.claims.finish(target.key, list(every), owner)


@pytest.fixture(scope="module")
def two_versions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that knows a model on two versions of a runtime: brick 2 takes twice as long."""
    cache = tmp_path_factory.mktemp("versions") / "cache"
    made = make_decomposition(KINDS, "net")
    with open_with_target(cache, OLD, NEW) as store:
        for target, factor in ((OLD, 1.0), (NEW, 2.0)):
            store.plans.save(made, target.key)
            latency_s = {key: 1e-3 for key in made.plan.keys}
            take(store, target, {**latency_s, "b1-0002": factor * 1e-3})
    return cache


@pytest.fixture
def versions(here: Here, two_versions: Path) -> Here:
    """A copy of ``two_versions``."""
    shutil.copytree(two_versions, here.cache)
    return here


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that were measured with one thread and with two, into ``cache`` and ``pairs``."""
    folder = tmp_path_factory.mktemp("measured")
    (folder / "models").mkdir()
    paths = [
        save(conv_net(blocks=1), folder / "models", "conv.onnx"),
        save(mlp(), folder / "models", "mlp.onnx"),
        save(chain("Relu", "Neg"), folder, FOREIGN),
    ]
    sized = save(mlp(batch="n", widths=(8, 4)), folder, "sized.onnx")
    for threads in (1, 2):
        with Bench(folder / "cache", runtime="fake", threads=threads, conditions=ROUGH) as bench:
            batches = [bench.read(sized, batch=batch) for batch in (1, 4)]
            bench.measure([*map(bench.read, paths), *batches])
        options = Options(runtime="fake", threads=threads, granularity="2", conditions=ROUGH)
        with Bench(folder / "pairs", options) as bench:  # of bricks: these are other targets
            bench.measure([bench.read(paths[2])])
    return folder


def test_what_is_slower_is_named_with_its_share(versions: Here, diff: Diff) -> None:
    done = diff("1.0", "2.0", "--json")
    assert (done.status, done.err) == (0, "")
    facts = done.json
    assert facts.keys() == DIFF
    assert (facts["old"]["name"], facts["new"]["name"]) == (
        "lab/fake-1.0/1-thread",
        "lab/fake-2.0/1-thread",
    )
    assert facts["old"]["key"] == OLD.key
    assert all(brick.keys() == BRICK for brick in facts["bricks"])
    (slow,) = [brick for brick in facts["bricks"] if brick["beyond_noise"]]
    assert (slow["brick"], slow["models"], slow["rounds"]) == ("b1-0002", ["net"], [16, 16])
    assert slow["ratio"] == pytest.approx(2)
    (model,) = facts["models"]
    assert model.keys() == MODEL
    assert model["ratio"] == pytest.approx(5 / 4, rel=0.01)
    assert model["beyond_noise"]
    assert all(part.keys() == CONTRIBUTION for part in model["contributions"])
    assert model["contributions"][0]["brick"] == "b1-0002"
    assert model["contributions"][0]["difference_s"] == pytest.approx(1e-3)
    assert facts["common"]["ratio"] == pytest.approx(1)
    assert (facts["fail_on"], facts["regressions"]) == (None, [])


def test_people_are_shown_the_same(versions: Here, diff: Diff) -> None:
    shown = diff("1.0", "2.0").out
    assert "1 are slower now, 0 faster, and 2 within noise" in shown
    assert "old: lab/fake-1.0/1-thread" in shown
    assert "b1-0002" in shown and "b1-0003" in shown
    assert "Where the difference of net comes from:" in shown
    other_way = diff("2.0", "1.0").out
    assert "0 are slower now, 1 faster" in other_way


def test_the_first_line_says_who_is_slower_by_how_much_where_and_how_sure(
    versions: Here, diff: Diff, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = diff("1.0", "2.0", "--json").json["answer"]
    assert answer.startswith(
        "net takes 25 % more with fake 2.0 than with 1.0 (5.00 ms, was 4.00 ms; sure), most of it"
        " in "
    )
    assert answer.endswith("(+1.00 ms).")
    back = diff("2.0", "1.0", "--json").json["answer"]
    assert back.startswith("net takes 20 % less with fake 1.0 than with 2.0 (4.00 ms, was 5.00 ms;")
    monkeypatch.setenv("COLUMNS", "80")
    short = versions("diff", "1.0", "2.0", runtime=None).out
    assert short.startswith("net takes 25 % more with fake 2.0")
    assert max(map(len, short.splitlines())) <= 80
    assert "+25.0 %" in short and "within noise" in short and "old: lab" not in short


def test_models_within_noise_are_told_by_their_interval(here: Here) -> None:
    made = make_decomposition(KINDS, "net")
    with open_with_target(here.cache, OLD, NEW) as store:
        for target in (OLD, NEW):
            store.plans.save(made, target.key)
            take(store, target, dict.fromkeys(made.plan.keys, 1e-3))
    answer = here("diff", "1.0", "2.0", "--json", runtime=None).json["answer"]
    assert answer.startswith("net: no difference beyond noise (±")
    assert answer.endswith("between fake 1.0 and 2.0.")


def test_a_slower_model_fails(versions: Here, diff: Diff) -> None:
    for share, status in (("3%", 1), ("0.03", 1), (" 24.5 %", 1), ("0%", 1), ("30%", 0), (".3", 0)):
        done = diff("1.0", "2.0", "--fail-on", share, "--json")
        assert done.status == status, share
        assert done.json["regressions"] == ["net"] * status, share
        assert ("net by 25.0 %" in done.err) == bool(status), share  # most bricks are as they were
    assert diff("1.0", "2.0", "--fail-on", "3%").complaint.endswith(": net by 25.0 %")
    faster = diff("2.0", "1.0", "--fail-on", "0%", "--json")
    assert (faster.status, faster.err, faster.json["regressions"]) == (0, "", [])
    assert faster.json["models"][0]["ratio"] == pytest.approx(4 / 5, rel=0.01)


def test_a_share_that_may_be_meant_otherwise_is_refused(versions: Here, diff: Diff) -> None:
    for share in ("3", "1", "-1%", "nan", "inf", "", "3 percent", "1e-2", "%"):
        done = diff("1.0", "2.0", "--fail-on", share)
        assert (done.status, done.out) == (2, ""), share
        assert "3%" in done.complaint and "0.03" in done.complaint


def test_the_fake_runtime_is_as_fast_with_any_threads(here: Here, measured: Path) -> None:
    def compared(*words: object) -> CommandResult:
        return here.plain("diff", "1-thread", "2-threads", *words, "--cache", measured / "cache")

    done = compared("--fail-on", "3%", "--json")
    assert (done.status, done.err) == (0, "")
    names = ["conv", "mlp", "sized (float[1,8])", "sized (float[4,8])"]  # and one of foreign text
    assert [m["model"] for m in done.json["models"]][1:] == names
    assert len(done.json["bricks"]) > 4
    for row in (*done.json["models"], *done.json["bricks"]):
        assert row["ratio"] == pytest.approx(1, abs=0.01)
        assert not row["beyond_noise"]
    for word, found in (
        ("mlp", ["mlp"]),
        (measured / "models" / "mlp.onnx", ["mlp"]),
        (measured / "models", ["conv", "mlp"]),
        ("sized", names[2:]),
        (names[3], names[3:]),  # models of one name are told apart by their shapes
    ):
        assert [m["model"] for m in compared(word, "--json").json["models"]] == found, word
    listed = here.plain("systems", "--all", "--cache", measured / "cache").out
    for runtime in done.json["old"], done.json["new"]:
        assert runtime["name"] in listed
        words = ("diff", runtime["name"], "t1-", "--cache", measured / "cache")
        assert here.plain(*words).status == 2  # both begin with that
    shown = compared().out
    assert printable(FOREIGN.removesuffix(".onnx")) in shown
    assert "\x1b" not in shown


def test_other_granularities_are_compared_too(here: Here, measured: Path) -> None:
    words = ("diff", "1-thread", "2-threads", "--granularity", 2, "--json")
    assert here.plain(*words[:3], "--cache", measured / "pairs").status == 1
    done = here.plain(*words, "--cache", measured / "pairs")
    assert (done.status, done.err, done.json["granularity"]) == (0, "", "2")
    (row,) = done.json["models"]
    assert row["ratio"] == pytest.approx(1, abs=0.01)
    ((_, brick),) = [(b["brick"], b["operators"]) for b in done.json["bricks"]]
    assert brick == ["Relu", "Neg"]


def test_a_model_that_only_the_old_one_knows_does_not_pass(versions: Here, diff: Diff) -> None:
    with Store.open(versions.cache) as store:
        store.plans.save(make_decomposition((1,), "gone", "e" * 64), OLD.key)
        store.plans.save(make_decomposition((3,), "come", "f" * 64), NEW.key)
    done = diff("1.0", "2.0")
    assert (done.status, done.err) == (0, "")
    assert "Only old knows, and nothing is compared of: gone." in done.out
    assert "Only new knows, and nothing is compared of: come." in done.out
    gated = diff("1.0", "2.0", "--fail-on", "90%")
    assert gated.status == 1
    assert gated.complaint == (
        "lab/fake-2.0/1-thread does not know gone: measure there too, or name the models to compare"
    )
    named = diff("1.0", "2.0", "net", "--fail-on", "90%", "--json")
    assert (named.status, [row["model"] for row in named.json["models"]]) == (0, ["net"])
    named = diff("1.0", "2.0", "come", "--fail-on", "90%")
    assert named.status == 1 and "come" in named.complaint
    named = diff("1.0", "2.0", "gone")
    assert named.status == 1
    assert "gone: lab/fake-2.0/1-thread does not know it: measure it there first" in named.complaint


def test_a_brick_that_fails_on_one_side_does_not_pass(
    here: Here, diff: Diff, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save(chain("Relu", "Tanh", "Sigmoid"), tmp_path, "net.onnx")
    assert here("measure", model, "--threads", 1).status == 0
    monkeypatch.setenv("BRICKS_FAKE_FAULTS", "Tanh=error")
    assert here("measure", model, "--threads", 2).status == 1
    for words in ((), ("--fail-on", "3%")):
        done = diff("1-thread", "2-threads", *words)
        assert done.status == 1
        assert "net: " in done.complaint and "failed as ordered" in done.complaint
        assert "bricks were measured on both" in done.out


def test_an_unmeasured_brick_is_named(here: Here, diff: Diff, tmp_path: Path) -> None:
    model = save(mlp(), tmp_path, "mlp.onnx")
    assert here("measure", model, "--threads", 1).status == 0
    assert here("decompose", model, "--threads", 2).status == 0
    done = diff("1-thread", "2-threads", "--fail-on", "3%", "--json")
    assert done.status == 1
    assert "2-threads lacks b1-" in done.complaint
    assert "(not measured on this target) and" in done.complaint
    assert [m["model"] for m in done.json["incomparable"]] == ["mlp"]
    assert done.json["bricks"] == []
    assert done.json["common"] is None


def test_where_all_is_slower_the_machine_may_be_the_cause(versions: Here, diff: Diff) -> None:
    throughout = Target(OLD.system, replace(OLD.runtime, version="3.0"))
    made = make_decomposition(KINDS, "net")
    with Store.open(versions.cache) as store:
        store.systems.save_target(throughout)
        store.plans.save(made, throughout.key)
        take(store, throughout, dict.fromkeys(made.plan.keys, 1.1e-3))
    assert "more than two sessions of one machine mostly differ by" in diff("1.0", "3.0").out
    done = diff("1.0", "3.0", "--fail-on", "3%")
    assert done.status == 1  # it is told, and not taken away
    assert "all bricks together by 10.0 %, which may be the machine" in done.complaint
    assert "mostly differ by" not in diff("1.0", "2.0").out


def test_where_others_kept_the_processors_busy_that_is_said(versions: Here, diff: Diff) -> None:
    busy = Target(OLD.system, replace(OLD.runtime, version="3.0"))
    made = make_decomposition(KINDS, "net")
    with Store.open(versions.cache) as store:
        store.systems.save_target(busy)
        store.plans.save(made, busy.key)
        take(store, busy, dict.fromkeys(made.plan.keys, 3e-3), waited_share=0.3)
    done = diff("1.0", "3.0", "--fail-on", "3%")
    assert "net: 100 % of it was only measured while others kept the processors busy" in done.out
    assert "3 of the bricks were sampled on a side only while others kept" in done.out
    assert done.status == 1
    assert "net by 200.0 % (100 % measured while others kept processors busy)" in done.complaint


def test_a_brick_that_was_measured_while_the_host_was_slow_is_no_regression(
    here: Here, diff: Diff
) -> None:
    """All kernels took twice as long, and the brick as much longer as bricks follow them."""
    usual, slow = (HostConditions((s,) * len(KERNELS)) for s in (1e-3, 2e-3))
    made = make_decomposition(KINDS, "net")
    latency_s = dict.fromkeys(made.plan.keys, 1e-3)
    hidden = {"b1-0002": 1e-3 * 2**0.9}
    with open_with_target(here.cache, OLD, NEW) as store:
        for target, host in ((OLD, usual), (NEW, slow)):
            store.plans.save(made, target.key)
            store.measurements.watch(target.key, [replace(usual, taken_s=s) for s in range(60)])
            take(store, target, {k: s for k, s in latency_s.items() if k not in hidden}, host=usual)
            take(store, target, hidden if host is slow else {"b1-0002": 1e-3}, host=host)
    done = diff("1.0", "2.0", "--fail-on", "3%", "--json")
    assert (done.status, done.json["regressions"]) == (0, [])
    assert [b["ratio"] for b in done.json["bricks"]] == pytest.approx([1] * 3, rel=0.01)
    assert not any(row["beyond_noise"] for row in (*done.json["bricks"], *done.json["models"]))


def test_what_was_measured_without_a_model_takes_the_plan_of_a_target_that_executes_the_same(
    versions: Here, diff: Diff
) -> None:
    """So a private suite comes back: results, and no plans."""
    back = Target(OLD.system, replace(OLD.runtime, threads=2))
    with Store.open(versions.cache) as store:
        store.systems.save_target(back)
        take(store, back, dict.fromkeys(make_decomposition(KINDS).plan.keys, 2e-3))
    done = diff("1.0/1-thread", "2-threads", "--fail-on", "3%", "--json")
    assert done.status == 1
    assert done.json["regressions"] == ["net"]
    assert diff("2.0", "2-threads").status == 1  # another version may execute another graph


def test_what_cannot_be_meant_is_one_line(versions: Here, diff: Diff, tmp_path: Path) -> None:
    same = diff("1.0", OLD.key)
    assert (same.status, same.out) == (2, "")
    assert (
        "are one target, lab/fake-1.0/1-thread, and a cache measures a target once"
        in same.complaint
    )
    assert diff("1.0", "moon").status == 2
    assert "it knows lab/fake-1.0/1-thread, lab/fake-2.0/1-thread" in diff("1.0", "moon").complaint
    assert diff("1.0", "2.0", "--granularity", "zero").status == 2
    unknown = diff("1.0", "2.0", "nothing-like-it")
    assert unknown.status == 1
    assert "no file, folder or zoo model is called 'nothing-like-it'" in unknown.complaint
    never = diff("1.0", "2.0", "squeezenet")
    assert never.status == 1
    assert "squeezenet: neither of the two knows it: measure it on both first" in never.complaint
    nowhere = versions.plain("diff", "1.0", "2.0", "--cache", tmp_path / "none")
    assert nowhere.status == 1
    assert "there is no cache in" in nowhere.complaint
    assert not (tmp_path / "none").exists()


def test_targets_without_a_model_in_common_are_no_comparison(here: Here, diff: Diff) -> None:
    with open_with_target(here.cache, OLD, NEW) as store:
        store.plans.save(make_decomposition(), OLD.key)
    done = diff("1.0", "2.0", "--fail-on", "3%")
    assert (done.status, done.out) == (1, "")
    assert "have no model in common at granularity executed" in done.complaint


def test_nothing_is_measured_and_no_runtime_is_asked_for(
    versions: Here, diff: Diff, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(backends, "describe", lambda *words, **_: asked.append(words))
    monkeypatch.setattr(
        "bricks.measure.supervisor.Supervisor.__init__", lambda *words, **_: asked.append(words)
    )
    done = diff("1.0", "2.0", "--json")
    assert (done.status, done.err, asked) == (0, "", [])
    assert [row["model"] for row in done.json["models"]] == ["net"]
    with Store.open(versions.cache) as store:
        assert store.measurements.results(NEW.key, ["b1-0004"]) == {}


def test_a_failure_on_both_sides_is_a_failure(versions: Here, diff: Diff) -> None:
    made = make_decomposition((1, 9), "sick", "e" * 64)
    with Store.open(versions.cache) as store:
        owner = Owner.current()
        for target in (OLD, NEW):
            store.plans.save(made, target.key)
            store.claims.claim(target.key, ["b1-0009"], owner)
            store.claims.fail(target.key, "b1-0009", "it crashed", owner)
            assert store.measurements.results(target.key, ["b1-0009"]) == {
                "b1-0009": Failure("b1-0009", "it crashed")
            }
    done = diff("1.0", "2.0", "--fail-on", "50%")
    assert done.status == 1
    assert "sick: lab/fake-1.0/1-thread lacks b1-0009 (it crashed)" in done.complaint
