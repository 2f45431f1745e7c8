from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from commands import Here, bricks
from factories import conv_net, mlp, save

NUMBER, COUNT, TEXT, NOTHING = (int, float), int, str, type(None)

COMPARED = {
    "model": TEXT, "kind": TEXT, "nodes": COUNT, "bricks": COUNT, "new_bricks": COUNT,
    "measured_latency_s": NUMBER, "measured_low_s": NUMBER, "measured_high_s": NUMBER,
    "estimate_s": NUMBER, "low_s": NUMBER, "high_s": NUMBER, "ratio": NUMBER, "coverage": NUMBER,
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
    assert facts.keys() == {"system", "runtime", "granularity", "workers", "models", "summary"}
    assert facts["workers"] == 1
    of_this_target(facts)
    for row in facts["models"]:
        has(row, COMPARED)
        assert row["ratio"] == pytest.approx(row["estimate_s"] / row["measured_latency_s"])
        assert row["low_s"] <= row["estimate_s"] <= row["high_s"]
        assert row["measured_low_s"] <= row["measured_latency_s"] <= row["measured_high_s"]
        assert row["coverage"] == 1.0
    summary = facts["summary"]
    has(summary, SUMMARY)
    assert summary["models"] == 2
    assert summary["median_abs_error"] < 0.02  # the fake runtime adds up exactly


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
    assert facts.keys() == {"models", "union"}
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
            "granularity": TEXT, "models": list, "occurrences": COUNT, "bricks": COUNT,
            "new_bricks": COUNT, "predicted_bricks": COUNT, "unfinished": COUNT,
            "failures": list, "wall_s": NUMBER,
            "foreign_cores": type(None),  # nothing is timed with the fake runtime
            "rounds": COUNT, "disturbed_rounds": COUNT, "remeasured_bricks": COUNT,
            "ballast_short": bool, "bricks_apart": COUNT,
        },
    )  # fmt: skip
    for row in facts["models"]:
        has(row, {"model": TEXT, "bricks": COUNT, "occurrences": COUNT, "error": NOTHING})
    assert facts["new_bricks"] == facts["bricks"] > 0


def test_predict(here: Here, models: list[Path]) -> None:
    done = here("predict", *models, "--threads", 1, "--json")
    assert (done.status, done.err) == (0, "")
    assert done.json.keys() == {"system", "runtime", "granularity", "workers", "models"}
    assert done.json["workers"] == 1
    of_this_target(done.json)
    for row in done.json["models"]:
        times = ("estimate_s", "low_s", "high_s", "critical_path_s", "call_overhead_s")
        shares = ("coverage", "other_state_share", "predicted_share", "measured_share")
        expected = dict.fromkeys((*times, *shares), NUMBER)
        memory = {"peak_bytes": COUNT, "memory": dict}
        lists = {"missing": list, "bricks": list, "phases": list}
        wide = {"uncertainty": dict, "advice": NOTHING}
        has(row, {"model": TEXT, **expected, **memory, **lists, "error": NOTHING, **wide})
        parts = dict.fromkeys(MEMORY, COUNT)
        has(row["memory"], {**parts, "unknown": list, "reason": NOTHING})
        assert row["peak_bytes"] == sum(row["memory"][part] for part in MEMORY) > 0
        assert sum(share["share"] for share in row["bricks"]) == pytest.approx(1)
        for share in row["bricks"]:
            has(
                share,
                {
                    "brick": TEXT, "occurrences": COUNT, "latency_s": NUMBER, "share": NUMBER,
                    "predicted": bool,
                },
            )  # fmt: skip


def test_predict_without_measurements_names_what_lacks(here: Here, models: list[Path]) -> None:
    done = here("predict", models[0], "--no-measure", "--json")
    assert done.status == 1
    (row,) = done.json["models"]
    assert (row["estimate_s"], row["low_s"], row["high_s"], row["coverage"]) == (None,) * 3 + (0,)
    bricks_of_it = [gap for gap in row["missing"] if gap["brick"].startswith("b1-")]
    assert sum(gap["occurrences"] for gap in bricks_of_it) == 15
    assert {gap["reason"] for gap in row["missing"]} == {"not measured on this target"}
    assert done.complaint == row["error"]
    assert row["error"].startswith("conv: no estimate without b1-")
    assert row["peak_bytes"] > row["memory"]["weight_bytes"] > 0  # that needs no measurement


def test_systems(here: Here, models: list[Path]) -> None:
    before = here.plain("systems", "--cache", here.cache, "--json").json
    assert before["systems"] == []
    here("measure", models[1], "--threads", 1)
    here("measure", models[1], "--threads", 2)
    done = here.plain("systems", "--cache", here.cache, "--json")
    assert (done.status, done.err) == (0, "")
    (row,) = done.json["systems"]
    assert row["this_host"] is True
    assert row["key"] == done.json["this_host"]["key"]
    assert {runtime["threads"] for runtime in row["runtimes"]} == {1, 2}


def test_cache_stats_and_verify(here: Here, models: list[Path]) -> None:
    measured = here("measure", *models, "--json").json
    done = here.plain("cache", "stats", "--json", "--cache", here.cache)
    assert (done.status, done.err) == (0, "")
    names = (
        "schema_version", "size_bytes", "systems", "networks", "targets", "plans", "bricks",
        "measurements", "failures", "open_claims", "samples",
    )  # fmt: skip
    has(done.json, {"path": TEXT, **dict.fromkeys(names, COUNT)})
    assert done.json["bricks"] == measured["bricks"]
    assert (done.json["plans"], done.json["failures"], done.json["open_claims"]) == (2, 0, 0)
    done = here.plain("cache", "verify", "--json", "--cache", here.cache)
    assert (done.status, done.err) == (0, "")
    assert done.json == {
        "path": str(here.cache / "bricks.sqlite"), "problems": [], "advice": None
    }  # fmt: skip


def test_a_process_prints_json_and_nothing_else(tmp_path: Path, models: list[Path]) -> None:
    done = bricks("compare", models[1], "--json", "--runtime", "fake", BRICKS_CACHE=str(tmp_path))
    assert (done.status, done.err) == (0, "")
    assert len(done.json["models"]) == 1
    assert (tmp_path / "bricks.sqlite").is_file()


def test_people_get_the_same_facts_as_tables(here: Here, models: list[Path]) -> None:
    for command in ("decompose", "measure", "predict", "compare"):
        done = here(command, *models)
        assert (done.status, done.err) == (0, "")
        if command != "measure":
            assert "conv" in done.out
            assert "mlp" in done.out
        with pytest.raises(ValueError):
            _ = done.json
