"""Published measurements answer where the user's cache has nothing, and never get into it."""

from __future__ import annotations

import hashlib
import json
import lzma
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Here
from factories import branching_net, conv_net, mlp, save
from onnx import TensorProto, helper
from refusals import refused
from tiers import slow_but

import bricks.session.workspace
from bricks import Bench, StoreError
from bricks.analysis.publishing import NotQuiet, Validated, publish, refuse_busy, runnable
from bricks.compose.estimate import Estimate, Provenance
from bricks.predict import learned_file
from bricks.predict.features import extract_features
from bricks.report.words import source_text
from bricks.samples.measurement import Measurement
from bricks.session import latency_model
from bricks.session.defaults import GRANULARITY
from bricks.session.device_latencies import device_latencies
from bricks.session.latencies import Latencies
from bricks.store import Published, Store
from bricks.store.published_index import INDEX, read_index, write_index
from bricks.studies.inference.result import ModelComparison
from bricks.system import System, fingerprint

EXECUTED = "executed"  # the granularity of recorded programs
CHECKOUT = Path(__file__).resolve().parents[2] / "cache" / "published"
HOME = fingerprint()
BIG = replace(HOME, name="big", identity={**HOME.identity, "logical_cpus": 97})
NETS = {"conv": conv_net(), "mlp": mlp(), "branching": branching_net()}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: save(proto, folder, f"{name}.onnx") for name, proto in NETS.items()}


def made(
    folder: Path, models: dict[str, Path], system: System, *names: str, threads: int = 1
) -> Path:
    """A folder in which a system published what it measured of some models."""
    place = folder / "published"
    place.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bricks.session.workspace, "fingerprint", lambda: system)
        with Bench(folder / "own", runtime="fake", threads=threads) as bench:
            compared = bench.compare([bench.read(models[name]) for name in names])
            validated = Validated.of(bench.workspace, compared)
    publish(folder / "own", [validated], place)
    return place


@pytest.fixture(scope="module")
def by_big(tmp_path_factory: pytest.TempPathFactory, models: dict[str, Path]) -> Path:
    return made(tmp_path_factory.mktemp("big"), models, BIG, "conv", "mlp")


@pytest.fixture
def place(by_big: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what a big system published, from where commands take it."""
    folder = tmp_path / "published"
    shutil.copytree(by_big, folder)
    monkeypatch.setenv("BRICKS_PUBLISHED", str(folder))
    return folder


def test_a_system_that_nobody_has_here_is_predicted_from_what_it_published(
    here: Here, place: Path, models: dict[str, Path], by_big: Path
) -> None:
    done = here("predict", models["conv"], "--on", "big", "--threads", 1, "--json")
    assert (done.status, done.err) == (0, "")
    (row,) = done.json["models"]
    assert done.json["system"]["name"] == "big"
    assert (row["published_share"], row["measured_share"]) == (1, 0)
    with Store.open(by_big.parent / "own") as store:
        (target,) = store.systems.targets()
        whole = store.measurements.results(target.key, [digest_of(models["conv"])])
    (measured,) = whole.values()
    assert isinstance(measured, Measurement)
    assert row["estimate_s"] == pytest.approx(measured.latency_s, rel=0.01)


def digest_of(path: Path) -> str:
    with Bench(path.parent / "digests", runtime="fake") as bench:
        return bench.read(path).digest


def test_nothing_published_gets_into_the_cache(
    here: Here, place: Path, models: dict[str, Path]
) -> None:
    here("predict", models["conv"], "--on", "big", "--threads", 1)
    here("advise", models["conv"], "--slo", "1s", "--on", "big")
    with Store.open(here.cache) as store:
        assert [t.system.name for t in store.systems.targets() if t.system.name == "big"] == []
        assert store.contents.stats().measurements == 0


def test_systems_lists_what_is_published(here: Here, place: Path) -> None:
    done = here("systems", "--json", runtime=None)
    (row,) = done.json["systems"]
    assert (row["name"], row["published"], row["this_host"]) == ("big", True, False)
    assert [runtime["published"] for runtime in row["runtimes"]] == [True]
    assert "big" in here("systems", runtime=None).out
    assert not here.cache.exists()


def test_a_published_name_counts_where_the_cache_has_another(
    here: Here, place: Path, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bricks.session.workspace, "fingerprint", lambda: replace(BIG, name="ours"))
    assert here("measure", models["mlp"], "--threads", 1).status == 0
    assert "\nours " in here("systems", runtime=None).out
    assert ", published as big:" in here("systems", "--all", runtime=None).out
    for name in ("ours", "big"):
        done = here("predict", models["conv"], "--on", name, "--threads", 1, "--json")
        assert done.json["system"]["name"] == "ours"
        assert done.json["models"][0]["error"] is None


def test_systems_and_advice_cover_published_systems_and_this_one(
    here: Here, place: Path, models: dict[str, Path]
) -> None:
    """Its own measurements are no published ones."""
    here("measure", models["conv"])
    rows = here("systems", "--json", runtime=None).json["systems"]
    assert {row["name"]: row["published"] for row in rows} == {"big": True, HOME.name: False}
    done = here("advise", models["conv"], "--slo", "1s", "--json")
    assert {row["system"] for row in done.json["settings"]} == {HOME.name, "big"}
    assert here("diff", "big", HOME.name, models["conv"], runtime=None).status == 0
    assert here("explain", models["conv"], "--on", "big", "--threads", 1).status == 0


def test_on_a_host_of_the_same_kind_own_measurements_win(
    here: Here, place: Path, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bricks.session.workspace, "fingerprint", lambda: BIG)
    with Bench(here.cache, runtime="fake", threads=1) as bench:
        model = bench.read(models["conv"])
        before = bench.predict(model, measure=False)
        assert isinstance(before, Estimate)
        assert bench.store.contents.stats().measurements == 0
        done = bench.measure([model])
        assert done.new_bricks == done.bricks > 0  # what others measured is not measured here
        own = bench.store.measurements.results(bench.target.key, bench.decompose(model).plan.keys)
        known = bench.workspace.known.measurements.results(
            bench.target.key, bench.decompose(model).plan.keys
        )
        assert known == own
        alone = bench.compare([bench.read(models["mlp"])])
        assert alone.new_models == 1
    with Bench(here.cache.parent / "none", runtime="fake", threads=1, published=False) as bench:
        assert not isinstance(bench.predict(bench.read(models["conv"]), measure=False), Estimate)


SHARES = ("measured_share", "published_share", "predicted_share")


@pytest.mark.parametrize("limit", [("--budget", 1e-9), ("--no-measure",), ("--effort", "quick")])
def test_what_others_measured_is_never_taken_for_own(
    here: Here,
    place: Path,
    models: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    limit: tuple[object, ...],
) -> None:
    """In each command and in Python: own, of others and predicted are shares that add up."""
    monkeypatch.setattr(bricks.session.workspace, "fingerprint", lambda: BIG)
    words = ("predict", models["conv"], "--threads", 1)
    (row,) = here(*words, *limit, "--json").json["models"]
    measured, published, predicted = (row[name] for name in SHARES)
    assert measured + published + predicted == pytest.approx(1)
    assert published == pytest.approx(sum(b["share"] for b in row["bricks"] if b["published"]))
    if limit[0] == "--effort":  # all of a small model are measured
        assert published == 0
        return
    assert (measured, published) == (0, 1)
    output = here(*words, *limit).out
    assert "100 % published" in output and f"bricks predict {models['conv']}" in output
    (explained,) = here("explain", *words[1:], "--no-measure", "--json").json["models"]
    assert [explained[name] for name in SHARES] == [0, 1, 0]
    assert "published by others" in here("explain", *words[1:], "--no-measure").out
    for answer in here("advise", models["conv"], "--slo", "1s", "--json").json["settings"]:
        assert [answer[name] for name in SHARES] == [0, 1, 0]
    with Bench(here.cache, runtime="fake", threads=1) as bench:
        estimate = bench.predict(bench.read(models["conv"]), measure=False)
        assert isinstance(estimate, Estimate)
        assert "published_share=1.0" in repr(estimate)
        (compared,) = bench.compare([bench.read(models["conv"])]).rows
        assert isinstance(compared, ModelComparison)
        assert compared.estimate.provenance == Provenance(1, 0, 0)


def test_own_measurements_and_those_of_others_are_told_apart(
    here: Here, place: Path, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bricks.session.workspace, "fingerprint", lambda: BIG)
    with Bench(here.cache, runtime="fake", threads=1) as bench:
        model = bench.read(models["conv"])
        some = bench.decompose(model).plan.keys[:2]
        bench.measure([model], only=some)
        estimate = bench.predict(model, measure=False)
    assert isinstance(estimate, Estimate)
    assert {share.brick for share in estimate.shares if not share.published} == set(some)
    assert 0 < estimate.measured_share < 1
    assert estimate.measured_share + estimate.published_share == pytest.approx(1)
    output = here("predict", models["conv"], "--threads", 1, "--no-measure").out
    assert source_text(estimate.provenance) in output


def test_a_file_that_was_changed_is_left_out_by_name_and_the_rest_serves(
    here: Here, place: Path, models: dict[str, Path], tmp_path: Path
) -> None:
    small = replace(HOME, name="small", identity={**HOME.identity, "logical_cpus": 98})
    other = made(tmp_path / "other", models, small, "conv")
    (entry,) = read_index(other)
    shutil.copy(other / entry.file, place)
    data = json.loads((place / INDEX).read_text(encoding="utf-8"))
    data["files"].append(entry.to_json())
    (place / INDEX).write_text(json.dumps(data), encoding="utf-8")
    assert len(here("systems", "--json", runtime=None).json["systems"]) == 2
    content = (place / entry.file).read_bytes()
    (place / entry.file).write_bytes(content[:-40])
    done = here("systems", "--json", runtime=None)
    assert [row["name"] for row in done.json["systems"]] == ["big"]
    assert done.status == 0
    assert f"{entry.file} is not as it was published" in done.err
    assert here("predict", models["conv"], "--on", "big", "--threads", 1).status == 0
    refused = here("predict", models["conv"], "--on", "small", "--threads", 1)
    assert refused.status != 0
    assert entry.file in refused.err


def test_an_index_of_another_format_is_left_out_by_name(
    here: Here, place: Path, models: dict[str, Path]
) -> None:
    data = json.loads((place / INDEX).read_text(encoding="utf-8"))
    for change, problem in (
        ({"name": "bricks-published", "version": 2}, "has version 2 of its format"),
        ({"name": "recipes", "version": 1}, "is damaged"),
    ):
        (place / INDEX).write_text(json.dumps(data | {"format": change}), encoding="utf-8")
        done = here("systems", "--json", runtime=None)
        assert done.json["systems"] == []
        assert f"{INDEX} {problem}" in done.err
    assert here("measure", models["mlp"]).status == 0


def test_a_file_of_a_later_format_is_left_out_by_name(place: Path) -> None:
    (entry,) = read_index(place)
    lines = lzma.decompress((place / entry.file).read_bytes()).replace(
        b'"version":1', b'"version":2', 1
    )
    content = lzma.compress(lines)
    (place / entry.file).write_bytes(content)
    data = json.loads((place / INDEX).read_text(encoding="utf-8"))
    data["files"][0]["sha256"] = hashlib.sha256(content).hexdigest()
    (place / INDEX).write_text(json.dumps(data), encoding="utf-8")
    published = Published(place)
    published.check()
    assert published.systems.targets() == []
    (problem,) = published.problems
    assert f"{entry.file} has version 2 of its format" in problem


def test_publishing_again_replaces_the_file_and_keeps_other_systems(
    by_big: Path, tmp_path: Path, models: dict[str, Path]
) -> None:
    shutil.copytree(by_big.parent, tmp_path / "again")
    before = read_index(tmp_path / "again" / "published")
    place = made(tmp_path / "again", models, BIG, "conv", "mlp", "branching")
    (entry,) = read_index(place)
    assert entry.file == before[0].file
    assert entry.sha256 != before[0].sha256
    (facts,) = entry.about["targets"].values()
    assert facts["models"] == 3
    assert facts["max_abs_error"] < 0.05
    assert {path.name for path in place.iterdir()} == {INDEX, entry.file}


def test_a_measured_model_is_predicted_without_reading_published_files(
    tmp_path: Path, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = made(tmp_path / "same", models, HOME, "mlp")
    monkeypatch.setenv("BRICKS_PUBLISHED", str(place))
    with Bench(tmp_path / "own", runtime="fake", threads=1) as bench:
        model = bench.read(models["mlp"])
        bench.measure([model])
    (entry,) = read_index(place)
    (place / entry.file).unlink()  # reading it would be a problem that is told
    with Bench(tmp_path / "own", runtime="fake", threads=1) as bench:
        assert isinstance(bench.predict(model), Estimate)
        assert bench.workspace.published.problems == []


def test_targets_that_a_cache_lacks_are_kept_from_the_earlier_file(
    place: Path, by_big: Path, tmp_path: Path, models: dict[str, Path]
) -> None:
    (before,) = read_index(place)
    made(tmp_path, models, BIG, "mlp", threads=2)
    (entry,) = read_index(place)
    assert [target.runtime.threads for target in entry.targets] == [1, 2]
    (kept,) = before.targets
    assert entry.about["targets"][kept.key] == before.about["targets"][kept.key]
    published, earlier = Published(place), Published(by_big)
    for read in (published, earlier):
        assert [plan.model for plan, _ in read.plans.all(kept.key, GRANULARITY)] == ["conv", "mlp"]
    keys = [*earlier.measurements.costs(kept.key)]
    assert keys
    assert published.measurements.results(kept.key, keys) == earlier.measurements.results(
        kept.key, keys
    )


def test_models_that_a_runtime_does_not_run_are_named_with_the_reason(
    tmp_path: Path, models: dict[str, Path]
) -> None:
    node = helper.make_node("Frobnicate", ["in"], ["out"], domain="nowhere")
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("in", "out")]
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("nowhere", 1)]
    graph = helper.make_graph([node], "strange", values[:1], values[1:])
    strange = save(
        helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path, "strange.onnx"
    )
    with Bench(tmp_path / "cache", threads=1) as bench:
        supported, refused = runnable(
            bench.workspace, [bench.read(models["mlp"]), bench.read(strange)]
        )
    assert [model.name for model in supported] == ["mlp"]
    assert refused.keys() == {"strange"}
    assert "Frobnicate" in refused["strange"]


def test_the_same_measurements_give_the_same_file(by_big: Path, place: Path) -> None:
    (before,) = read_index(place)
    again = publish(by_big.parent / "own", [], place)
    assert again == before


def test_a_published_file_is_a_results_file_that_a_cache_takes_in(here: Here, place: Path) -> None:
    (entry,) = read_index(place)
    done = here.plain("cache", "import", place / entry.file, "--json", "--cache", here.cache)
    assert done.status == 0
    assert done.json["measurements"] > 0


def test_a_system_measured_with_other_threads_is_named_with_them(
    here: Here, place: Path, models: dict[str, Path]
) -> None:
    done = here("predict", models["conv"], "--on", "big", "--json")
    assert done.json["runtime"]["threads"] == 1  # the only one there
    refused = here("predict", models["conv"], "--on", "big", "--threads", 3)
    assert refused.status == 2
    assert "not measured with --threads 3, but with 1" in refused.complaint


def test_a_cache_with_nothing_to_publish_is_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path / "empty"), refused(StoreError, tmp_path / "empty"):
        publish(tmp_path / "empty", [], tmp_path)


def test_a_busy_host_is_refused() -> None:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        with refused(NotQuiet):
            refuse_busy(0.5)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def well_known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a system published enough to learn from."""
    return made(tmp_path_factory.mktemp("well"), {"zoo": Path("squeezenet")}, BIG, "zoo")


@pytest.mark.slow
def test_on_a_new_host_what_others_measured_is_said_before_measuring(
    here: Here, well_known: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_PUBLISHED", str(well_known))
    done = here("predict", "squeezenet")
    first, *_ = done.err.splitlines()
    assert first.startswith("bricks: squeezenet: ")
    assert first.endswith("by measurements of others; measuring it here")
    assert here("predict", "shufflenet").err == ""  # from here on, this host speaks for itself


def test_a_host_without_measurements_borrows_those_of_others_with_a_wide_interval(
    here: Here, well_known: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("predict", "squeezenet", "--threads", 1, "--no-measure", "--json")
    assert here(*words).json["models"][0]["estimate_s"] is None
    monkeypatch.setenv("BRICKS_PUBLISHED", str(well_known))
    (row,) = here(*words).json["models"]
    assert row["measured_share"] == 0
    assert row["low_s"] < 0.6 * row["estimate_s"]
    assert row["high_s"] > 1.4 * row["estimate_s"]
    there = here(*words, "--on", "big").json["models"][0]
    assert row["estimate_s"] == pytest.approx(there["estimate_s"], rel=0.05)
    (now,) = here(*words, "--now").json["models"]  # the other's bricks tell nothing of products
    widths = [(of["high_s"] - of["low_s"]) / of["estimate_s"] for of in (now, row)]
    assert widths[0] == pytest.approx(widths[1], rel=0.02)


def test_a_second_of_reference_kernels_narrows_what_is_borrowed(
    here: Here, well_known: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convolution = latency_model.kernel_features()["convolution"]  # the kernel that the other knows
    every = dict.fromkeys(("convolution", "product", "stream"), convolution)
    monkeypatch.setattr(latency_model, "kernel_features", lambda: every)
    monkeypatch.setenv("BRICKS_PUBLISHED", str(well_known))
    words = ("predict", "squeezenet", "--threads", 1, "--no-measure", "--json")
    (plain,) = here(*words).json["models"]
    (now,) = here(*words, "--now").json["models"]
    assert plain["low_s"] / plain["estimate_s"] < now["low_s"] / now["estimate_s"] < 0.9
    assert now["measured_share"] == 0


def shares_of(here: Here, model: str) -> tuple[float, float, float]:
    """A model that nobody measured, on the big system: the estimate, and its bounds beside it."""
    done = here("predict", model, "--on", "big", "--threads", 1, "--no-measure", "--json")
    (row,) = done.json["models"]
    assert row["measured_share"] < 0.5
    estimate_s = row["estimate_s"]
    return estimate_s, row["low_s"] / estimate_s, row["high_s"] / estimate_s


@pytest.fixture
def learned_at(well_known: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what was published and learned, from where commands take it."""
    folder = shutil.copytree(well_known, tmp_path / "published")
    monkeypatch.setenv("BRICKS_PUBLISHED", str(folder))
    return folder


def test_what_was_learned_is_kept_and_answers_as_learning_anew_does(
    here: Here, learned_at: Path
) -> None:
    kept = shares_of(here, "shufflenet")
    (entry,) = read_index(learned_at)
    write_index(learned_at, [replace(entry, learned=None)])
    anew = shares_of(here, "shufflenet")
    assert kept[0] == pytest.approx(anew[0], rel=1e-6)
    # The kept one tells what is uncertain from fewer bricks, so it is a little more careful.
    assert anew[1] - 0.05 < kept[1] <= anew[1] * (1 + 1e-6)
    assert anew[2] * (1 - 1e-6) <= kept[2] < anew[2] + 0.05


@pytest.mark.parametrize(
    "damage",
    slow_but(lambda damage: damage == "altered", ["altered", "missing", "of another file"]),
)
def test_without_what_was_learned_it_is_learned_anew(
    here: Here, learned_at: Path, damage: str
) -> None:
    (entry,) = read_index(learned_at)
    assert entry.learned is not None
    path = learned_at / entry.learned.file
    if damage == "altered":
        path.write_bytes(path.read_bytes()[:-9])
    elif damage == "missing":
        path.unlink()
    else:
        write_index(
            learned_at, [replace(entry, learned=replace(entry.learned, learned_from="0" * 64))]
        )
    done = here("predict", "shufflenet", "--on", "big", "--no-measure", "--json")
    assert done.status == 0
    assert (entry.learned.file in done.err) == (damage != "of another file")
    assert done.json["models"][0]["estimate_s"] > 0


def test_an_earlier_file_that_was_changed_is_not_taken_over(
    place: Path, tmp_path: Path, models: dict[str, Path]
) -> None:
    (entry,) = read_index(place)
    content = (place / entry.file).read_bytes()
    (place / entry.file).write_bytes(lzma.compress(lzma.decompress(content), preset=1))
    with refused(StoreError, place / entry.file, INDEX):
        made(tmp_path, models, BIG, "mlp", threads=2)


@pytest.mark.slow
def test_shipped_files_hold_what_learning_gives() -> None:
    """Where this fails, the predictor was changed: a new version of the format, `make learned`."""
    shipped = Published(CHECKOUT)
    learned = [entry for entry in shipped.entries() if entry.learned is not None]
    processors = [entry for entry in learned if entry.targets[0].system.accelerator is None]
    target_key = min(processors, key=lambda entry: len(entry.targets)).targets[0].key
    content = shipped.measurements.learned(target_key)
    assert content is not None
    kept = learned_file.read(content, target_key, GRANULARITY)
    anew = Latencies(Unlearned(CHECKOUT), target_key, GRANULARITY).to_keep()
    assert kept is not None and anew is not None
    assert kept.slowness == anew.slowness
    assert kept.predictor.bias == pytest.approx(anew.predictor.bias, rel=1e-3)
    (plan, _), *_ = shipped.plans.all(target_key, GRANULARITY)
    bricks = shipped.plans.load_bricks(plan.keys)
    features = {key: extract_features(brick) for key, brick in bricks.items()}
    for key, one in kept.predictor.predict(features).items():
        other = anew.predictor.predict(features)[key]
        assert one.latency_s == pytest.approx(other.latency_s, rel=1e-3)


@pytest.fixture
def published_card(tmp_path: Path) -> Path:
    """A folder with what ships of the card with fewest measurements."""
    entry = min(
        (e for e in read_index(CHECKOUT) if e.targets[0].system.accelerator is not None),
        key=lambda e: (CHECKOUT / e.file).stat().st_size,
    )
    assert entry.learned is not None
    for name in (entry.file, entry.learned.file):
        shutil.copy(CHECKOUT / name, tmp_path)
    write_index(tmp_path, [entry])
    return tmp_path


@pytest.mark.slow
def test_shipped_files_of_cards_hold_what_learning_gives(published_card: Path) -> None:
    """Where this fails, the predictor was changed: a new version of the format, `make learned`."""
    (entry,) = read_index(published_card)
    (target,) = entry.targets
    sources = Published(published_card), Unlearned(published_card)
    (plan, _), *_ = sources[0].plans.all(target.key, EXECUTED)
    bricks = sources[0].plans.load_bricks(plan.keys)
    kept, anew = (device_latencies(source, target).predicted(bricks) for source in sources)
    assert {key: of.operator for key, of in kept.items()} == {
        k: of.operator for k, of in anew.items()
    }
    for key, one in kept.items():
        assert one.device_s.value == pytest.approx(anew[key].device_s.value, rel=1e-3)
        assert one.device_s.high == pytest.approx(anew[key].device_s.high, rel=1e-3)


@pytest.mark.slow
def test_without_what_was_learned_of_a_card_it_is_learned_anew(published_card: Path) -> None:
    (entry,) = read_index(published_card)
    (target,) = entry.targets
    assert entry.learned is not None
    path = published_card / entry.learned.file
    path.write_bytes(path.read_bytes()[:-9])
    source = Published(published_card)
    (plan, _), *_ = source.plans.all(target.key, EXECUTED)
    bricks = source.plans.load_bricks(plan.keys)
    assert device_latencies(source, target).predicted(bricks).keys() == bricks.keys()
    (problem,) = source.problems
    assert path.name in problem


def test_a_model_that_is_asked_for_again_gets_the_same_answer(here: Here, learned_at: Path) -> None:
    assert shares_of(here, "shufflenet") == shares_of(here, "shufflenet")


class Unlearned(Published):
    """What is published, without what was learned from it."""

    def learned(self, target_key: str) -> None:
        return None
