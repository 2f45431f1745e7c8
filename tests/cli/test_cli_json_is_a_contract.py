import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT, Here, bricks, chain
from factories import conv_net, mlp, save
from rough import ROUGH
from store_examples import make_target

from bricks import Bench
from bricks.cli.main import root_command
from bricks.store import Store
from bricks.system import fingerprint

# Commands that other files hold: of which the last two print no facts.
ELSEWHERE = {
    "train": "cli/test_cli_trains_until_an_accuracy.py",
    "scale": "cli/test_cli_scales_over_ranks.py",
    "llm": "cli/test_cli_llm_answers.py",
    "zoo build": "zoo/test_zoo_is_listed_and_built_anew.py",
    "web": "web/test_a_server_answers_for_every_system.py",
    "worker": "fleet/test_a_fleet_measures_each_brick_once_per_system.py",
}

# The names that the facts of each other command have, on one model; below, those of the first entry
# of each list among them.
SYSTEM = "key name identity recorded"
NETWORK = f"{SYSTEM} target backend version ranks operations series"
FITS = {"fits": "operation ranks computing deviation pieces points"}
# The facts about a device, of models that run on a processor.
DEVICE_FACTS = (
    *("device_s", "device_low_s", "device_high_s", "host_s", "host_low_s", "host_high_s"),
    *("pipelined_s", "pipelined_low_s", "pipelined_high_s"),
    *("graph_s", "graph_low_s", "graph_high_s", "limited_by", "kernels"),
    *("throttled_share", "throttled_by", "launching"),
)

FACTS: dict[str, tuple[str, dict[str, str]]] = {
    "generate": (
        "answer suite private models sha256 size_bytes bricks occurrences decoys",
        {"models": "model bricks error"},
    ),
    "probe": (
        "answer system runtime granularity models bricks probes measured_bricks teachers deviation"
        " wall_s",
        {},
    ),
    "explain": (
        "answer system runtime granularity workers models trace",
        {
            "models": "model estimate_s low_s high_s critical_path_s call_overhead_s"
            " measured_share published_share predicted_share peak_bytes memory"
            f" {' '.join(DEVICE_FACTS)}"
            " missing bricks phases error uncertainty advice watched_s own_runs usual_s usual_low_s"
            " usual_high_s old_bricks p50_s p90_s p99_s branches changing_inputs"
            " loop_p50_s loop_p99_s loop_runs_per_s"
            " fastest_s peaks operators gains integers"
        },
    ),
    "report": (
        "answer report size_bytes granularity targets unmeasured agreements",
        {"targets": "system runtime bricks measured failed summary models costly"},
    ),
    "advise": (
        "answer slo_s percentile qps candidates deciding settings agreements",
        {
            "candidates": "model meets_slo hosts hosts_low hosts_high max_qps max_qps_low"
            " max_qps_high best error",
            "settings": "model system system_key runtime runtime_version threads instances batch"
            " meets_slo hosts hosts_low hosts_high latency_s latency_s_low latency_s_high"
            " measured_share published_share predicted_share spread_known cost_per_million error",
        },
    ),
    "validate operators": (
        "system missing runtimes operators page",
        {
            "runtimes": "backend version provider threads brick_optimization peaks",
            "operators": "operator source flops bytes runtimes",
        },
    ),
    "validate models": (
        "system missing runtimes models",
        {
            "runtimes": "backend version provider threads brick_optimization",
            "models": "model kind own_weights runtimes pairs",
        },
    ),
    "scenario": (
        "answer model system runtime scenario qps arrivals samples_per_query slo_s percentile"
        " max_batch batch_timeout_s instances max_queue request_cost_s batch_cost_s transport_s"
        " falls_asleep_s wakes_s mean_batch saturated"
        " meets_slo warnings best_batch interpolation_error batches checked "
        + " ".join(
            f"{figure} {figure}_low {figure}_high"
            for figure in (
                "p50_s", "p90_s", "p99_s", "p999_s", "trimmed_mean_s", "counted_s", "throughput",
                "utilisation", "dropped_share", "capacity_qps", "max_qps",
            )
        ),
        {
            "batches": "batch latency_s latency_s_low latency_s_high throughput throughput_low"
            " throughput_high measured_share published_share predicted_share asleep_share"
        },
    ),
    "systems": ("answer this_host systems", {"systems": f"{SYSTEM} this_host published runtimes"}),
    "systems set": (SYSTEM, {}),
    "systems diff": ("one other differences", {}),
    "cache export": ("file records systems", {}),
    "cache import": (
        "file systems networks targets bricks plans measurements rounds known busy", {}
    ),
    "cache publish": (
        "folder bytes file sha256 system targets about left_out", {"targets": "key runtime"}
    ),
    "interconnect measure": (f"{NETWORK} fits slowdowns new known again left_out", FITS),
    "interconnect list": ("networks", {"networks": NETWORK}),
    "interconnect show": (f"{NETWORK} fits slowdowns", FITS),
    "zoo list": (
        "models",
        {
            "models": "name version task family framework source recipe inputs parameters flops"
            " file sha256 kind code"
        },
    ),
    "backends list": (
        "backends", {"backends": "name installed version provider environment missing note"}
    ),
    "backends install": ("name installed version provider environment missing note new", {}),
}  # fmt: skip

NUMBER, COUNT, TEXT, NOTHING = (int, float), int, str, type(None)


PROVENANCE = ("measured_share", "published_share", "predicted_share")

COMPARED = {
    "model": TEXT, "kind": TEXT, "nodes": COUNT, "bricks": COUNT, "new_bricks": COUNT,
    "measured_latency_s": NUMBER, "measured_low_s": NUMBER, "measured_high_s": NUMBER,
    "estimate_s": NUMBER, "low_s": NUMBER, "high_s": NUMBER, "ratio": NUMBER, "coverage": NUMBER,
    "measured_share": NUMBER, "published_share": NUMBER, "predicted_share": NUMBER,
    "uncertainty": dict, "advice": (TEXT, NOTHING), "error": NOTHING,
}  # fmt: skip
SUMMARY = {
    "models": COUNT, "occurrences": COUNT, "bricks": COUNT,
    **dict.fromkeys(
        (
            "median_abs_error", "p95_abs_error", "max_abs_error", "geomean_ratio",
            "interval_hit_rate", "noise_floor", "speedup_latency", "speedup_wall",
            "bricks_wall_s", "models_wall_s",
        ),
        NUMBER,
    ),
}  # fmt: skip
COUNTS = {
    "nodes": COUNT, "bricks": COUNT, "occurrences": COUNT, "unique_share": NUMBER,
    "flops": COUNT, "weight_bytes": COUNT,
}  # fmt: skip

MEMORY = (
    "weight_bytes", "activation_bytes", "workspace_bytes", "runtime_bytes", "loading_bytes",
    "gradient_bytes", "optimizer_bytes", "temporary_bytes",
)  # fmt: skip


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    return [save(conv_net(), tmp_path, "conv.onnx"), save(mlp(), tmp_path, "mlp.onnx")]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that knows both models with one thread, and one of them with two."""
    folder = tmp_path_factory.mktemp("known")
    conv, dense = save(conv_net(), folder, "conv.onnx"), save(mlp(), folder, "mlp.onnx")
    for threads, paths in ((1, (conv, dense)), (2, (dense,))):
        with Bench(folder / "cache", runtime="fake", threads=threads, conditions=ROUGH) as bench:
            bench.measure([*map(bench.read, paths)])
    return folder / "cache"


@pytest.fixture
def measured(here: Here, known: Path) -> Here:
    """Commands on a copy of that."""
    shutil.copytree(known, here.cache)
    return here


def has(facts: Mapping[str, Any], shape: Mapping[str, Any]) -> None:
    """All keys of ``shape`` and no others, each of its type."""
    assert facts.keys() == shape.keys()
    for name, kind in shape.items():
        assert isinstance(facts[name], kind), (name, facts[name])


def of_this_target(facts: Mapping[str, Any]) -> None:
    assert facts["system"].keys() >= {"key", "name", "identity"}
    assert facts["runtime"]["backend"] == "fake"
    assert facts["runtime"]["threads"] == 1
    assert facts["granularity"] == "executed"


def test_compare(here: Here, models: list[Path]) -> None:
    done = here("compare", *models, "--threads", 1, "--json")
    assert (done.status, done.err) == (0, "")
    facts = done.json
    keys = "answer system runtime granularity workers copies models summary agreements"
    assert facts.keys() == set(keys.split())
    assert facts["workers"] == 1
    of_this_target(facts)
    for row in facts["models"]:
        has(row, COMPARED)
        assert row["ratio"] == pytest.approx(row["estimate_s"] / row["measured_latency_s"])
        assert row["low_s"] <= row["estimate_s"] <= row["high_s"]
        assert row["measured_low_s"] <= row["measured_latency_s"] <= row["measured_high_s"]
        assert row["coverage"] == 1.0
        assert [row[name] for name in PROVENANCE] == [1.0, 0.0, 0.0]
    summary = facts["summary"]
    has(summary, SUMMARY)
    assert summary["models"] == 2
    assert summary["median_abs_error"] < 0.02  # the fake runtime adds up exactly


def test_every_other_command_has_the_facts_of_its_contract(
    here: Here, tmp_path: Path, few_queries: None
) -> None:
    host, path = fingerprint().key, save(mlp(batch="N"), tmp_path, "mlp.onnx")
    one = ("--batch", 1, "--threads", 1)
    suite, file = tmp_path / "suite.zip", tmp_path / "results.jsonl"
    target = make_target("lab")
    with Store.open(here.cache) as store:
        store.systems.save_target(target)
    (tmp_path / "published").mkdir()
    publishing = (save(chain("Relu"), tmp_path, "relu.onnx"), "--into", tmp_path / "published")
    network = ("lan", "--backend", "fake", "--operation", "broadcast", "--max-bytes", 70_000)
    # In this order: the first of them measure.
    lines: dict[str, tuple[object, ...]] = {
        "probe": (path, "--bricks", 30, *one),
        "generate": (path, *one, "--out", suite),
        "explain": (path, *one),
        "report": (path, *one, "--out", tmp_path / "report.html"),
        "advise": (path, *one, "--slo", "1s"),
        "validate operators": (publishing[0], "--threads", 1),
        "validate models": (publishing[0], "--threads", 1),
        "scenario": (path, "--threads", 1),
        "systems set": (host, "--name", "office"),
        "systems": (),
        "systems diff": ("office", "lab"),
        "cache export": (file, "--on", "office"),
        "cache import": (file,),
        "cache publish": (*publishing, "--threads", 1),
        "interconnect measure": network,
        "interconnect list": (),
        "interconnect show": ("lan",),
        "zoo list": (),
        "backends list": (),
        "backends install": ("fake",),
    }
    assert lines.keys() == FACTS.keys()
    for name, words in lines.items():
        own = tmp_path / name if name in ("cache import", "cache publish") else here.cache
        options = () if name.split()[0] in ("zoo", "backends") else ("--cache", own)
        if name.split()[0] not in ("systems", "interconnect", "zoo", "backends", "cache"):
            options += ("--runtime", "fake")
        if name == "cache publish":
            options += ("--runtime", "fake")
        done = here.plain(*name.split(), *words, *options, "--json")
        # The fake runtime computes nothing that could be compared; few bricks predict no others.
        assert done.status == (name in ("validate models", "probe")), (name, done.err)
        facts, (names, lists) = done.json, FACTS[name]
        assert facts.keys() == set(names.split()), name
        for of, inner in lists.items():
            assert facts[of][0].keys() == set(inner.split()), (name, of)


def test_no_command_is_without_a_contract() -> None:
    def names(group: Any, *before: str) -> Iterator[str]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from names(command, *before, name)
            else:
                yield " ".join((*before, name))

    here = {
        "compare", "decompose", "measure", "predict", "cache stats", "cache verify",
        "diff", "zoo similarity", "zoo coverage",  # these in files of their own
    }  # fmt: skip
    known = {*here, *ELSEWHERE, *FACTS} - {"systems"}  # a group that is a command too
    assert set(names(root_command())) == known
    for name, place in ELSEWHERE.items():
        assert name.split()[-1] in (ROOT / "tests" / place).read_text(encoding="utf-8")


def test_compare_with_nothing_to_compare(here: Here) -> None:
    done = here("compare", "none.onnx", "--json")
    assert done.status == 1
    (row,) = done.json["models"]
    assert row.keys() == COMPARED.keys()
    assert row["error"] == done.complaint
    assert {value for name, value in row.items() if name not in ("model", "error")} == {None}
    assert done.json["summary"].keys() == SUMMARY.keys()
    assert done.json["summary"]["models"] == 0
    assert done.json["summary"]["median_abs_error"] is None


def test_decompose(here: Here, models: list[Path]) -> None:
    done = here("decompose", *models, "--json")
    assert (done.status, done.err) == (0, "")
    facts = done.json
    assert facts.keys() == {"answer", "models", "union"}
    for row in facts["models"]:
        known = {"assumed": list, "denormal_share": (float, NOTHING)}
        has(row, {"model": TEXT, **COUNTS, **known, "error": NOTHING})
    has(facts["union"], {**COUNTS, "models": COUNT})
    for name in ("nodes", "occurrences", "flops", "weight_bytes"):
        assert facts["union"][name] == sum(row[name] for row in facts["models"])
    assert facts["union"]["bricks"] <= sum(row["bricks"] for row in facts["models"])


@pytest.mark.parametrize("granularity", ["executed", "2"])
def test_decompose_and_verify(here: Here, models: list[Path], granularity: str) -> None:
    words = ("decompose", *models, "--verify", "--granularity", granularity, "--json")
    done = here(*words, runtime="onnxruntime")
    assert (done.status, done.err) == (0, "")
    for row in done.json["models"]:
        assert isinstance(row["exact"], bool)
        assert row["exact"] or granularity == "2"
        assert 0 <= row["max_abs_difference"] < 1e-4


def test_measure(here: Here, models: list[Path]) -> None:
    done = here("measure", *models, "--threads", 1, "--json")
    assert (done.status, done.err) == (0, "")
    facts = done.json
    of_this_target(facts)
    has(
        {k: v for k, v in facts.items() if k not in ("system", "runtime")},
        {
            "answer": TEXT, "granularity": TEXT, "models": list, "occurrences": COUNT,
            "bricks": COUNT, "new_bricks": COUNT, "predicted_bricks": COUNT, "unfinished": COUNT,
            "failures": list, "wall_s": NUMBER,
            "foreign_cores": type(None),  # nothing is timed with the fake runtime
            "rounds": COUNT, "disturbed_rounds": COUNT, "throttled_rounds": COUNT,
            "remeasured_bricks": COUNT, "ballast_short": bool, "bricks_apart": COUNT,
        },
    )  # fmt: skip
    for row in facts["models"]:
        has(row, {"model": TEXT, "bricks": COUNT, "occurrences": COUNT, "error": NOTHING})
    assert facts["new_bricks"] == facts["bricks"] > 0


def test_predict(measured: Here, models: list[Path]) -> None:
    done = measured("predict", *models, "--threads", 1, "--json")
    assert (done.status, done.err) == (0, "")
    assert done.json.keys() == {
        "answer",
        "system",
        "runtime",
        "granularity",
        "workers",
        "models",
        "mixes",
        "agreements",
        "orders",
    }
    assert (done.json["workers"], done.json["agreements"]) == (1, [])
    of_this_target(done.json)
    for row in done.json["models"]:
        times = ("estimate_s", "low_s", "high_s", "critical_path_s", "call_overhead_s")
        runs = ("watched_s", "p50_s", "p90_s", "p99_s")
        expected = dict.fromkeys((*times, *PROVENANCE, *runs), NUMBER)
        memory = {"peak_bytes": COUNT, "memory": dict}
        lists = {"missing": list, "bricks": list, "phases": list, "branches": list}
        wide = {"uncertainty": dict, "advice": NOTHING, **dict.fromkeys(DEVICE_FACTS, NOTHING)}
        places = {"system": TEXT, "runtime": TEXT}
        places |= {"threads": COUNT, "copies": COUNT, "batch": COUNT}
        loop = ("loop_p50_s", "loop_p99_s", "loop_runs_per_s")
        none = ("changing_inputs", "own_runs", "usual_s", "usual_low_s", "usual_high_s", *loop)
        usual = dict.fromkeys(none, NOTHING)
        places |= {"old_bricks": COUNT}
        setting = {**places, "shapes": list, "quantize": NOTHING, **usual}
        has(
            row, {"model": TEXT, **setting, **expected, **memory, **lists, "error": NOTHING, **wide}
        )
        parts = dict.fromkeys(MEMORY, COUNT)
        has(row["memory"], {**parts, "unknown": list, "reason": NOTHING})
        assert row["peak_bytes"] == sum(row["memory"][part] for part in MEMORY) > 0
        assert sum(share["share"] for share in row["bricks"]) == pytest.approx(1)
        for share in row["bricks"]:
            has(
                share,
                {
                    "brick": TEXT, "occurrences": COUNT, "latency_s": NUMBER, "share": NUMBER,
                    "predicted": bool, "published": bool, "device_s": type(None),
                },
            )  # fmt: skip


def test_predict_without_measurements_names_what_lacks(here: Here, models: list[Path]) -> None:
    done = here("predict", models[0], "--no-measure", "--json")
    assert done.status == 1
    (row,) = done.json["models"]
    assert [row[name] for name in ("estimate_s", "low_s", "high_s", *PROVENANCE)] == [None] * 6
    bricks_of_it = [gap for gap in row["missing"] if gap["brick"].startswith("b1-")]
    assert sum(gap["occurrences"] for gap in bricks_of_it) == 15
    assert {gap["reason"] for gap in row["missing"]} == {"not measured on this target"}
    assert done.complaint == row["error"]
    assert row["error"].startswith("conv: no estimate without b1-")
    assert row["peak_bytes"] > row["memory"]["weight_bytes"] > 0  # that needs no measurement


def test_systems(measured: Here) -> None:
    here = measured
    done = here.plain("systems", "--cache", here.cache, "--json")
    assert (done.status, done.err) == (0, "")
    (row,) = done.json["systems"]
    assert row["this_host"] is True
    assert row["key"] == done.json["this_host"]["key"]
    assert {runtime["threads"] for runtime in row["runtimes"]} == {1, 2}


def test_cache_stats_and_verify(measured: Here, models: list[Path]) -> None:
    here = measured
    union = here("decompose", *models, "--threads", 1, "--json").json["union"]
    done = here.plain("cache", "stats", "--json", "--cache", here.cache)
    assert (done.status, done.err) == (0, "")
    names = (
        "schema_version", "size_bytes", "systems", "networks", "targets", "plans", "bricks",
        "measurements", "failures", "open_claims", "samples",
    )  # fmt: skip
    has(done.json, {"path": TEXT, **dict.fromkeys(names, COUNT)})
    assert done.json["bricks"] == union["bricks"]
    assert (done.json["plans"], done.json["failures"], done.json["open_claims"]) == (3, 0, 0)
    done = here.plain("cache", "verify", "--json", "--cache", here.cache)
    assert (done.status, done.err) == (0, "")
    assert done.json == {
        "path": str(here.cache / "bricks.sqlite"), "problems": [], "advice": None
    }  # fmt: skip


def test_a_process_prints_json_and_nothing_else(known: Path, models: list[Path]) -> None:
    words = ("predict", models[1], "--no-measure", "--json", "--runtime", "fake", "--threads", 1)
    done = bricks(*words, BRICKS_CACHE=str(known))
    assert (done.status, done.err) == (0, "")
    assert [row["error"] for row in done.json["models"]] == [None]


def test_people_get_the_same_facts_as_tables(measured: Here, models: list[Path]) -> None:
    for command in ("decompose", "measure", "predict", "compare"):
        done = measured(command, *models, "--threads", 1)
        assert (done.status, done.err) == (0, "")
        assert command == "measure" or ("conv" in done.out and "mlp" in done.out)
        with pytest.raises(ValueError):
            _ = done.json
