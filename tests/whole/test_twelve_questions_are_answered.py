"""Twelve everyday questions: one command each, whose first line is the answer, at 80 columns.

Every number in that line is one of the facts that ``--json`` has, so that no sentence is made up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import runtime_environments
from commands import ROOT, CommandResult, bricks
from factories import mlp, save

from bricks.system import fingerprint

pytestmark = pytest.mark.slow

COLUMNS = 80
PUBLISHED = ROOT / "cache" / "published"
CANDIDATES = ("squeezenet", "shufflenet", "alexnet", "inception_v1", "resnet50")
ROUGH = ("--precision", "0.2")

# A number of a sentence with its unit; names such as resnet50 are none.
NUMBER = re.compile(r"(?<![\w.-])(>|<)?(\d[\d,]*(?:\.\d+)?)\s?(ns|µs|ms|s|min|h|%|GiB|MiB|times)?")
FACTORS = {
    "ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0,
    "%": 0.01, "GiB": 2.0**30, "MiB": 2.0**20,
}  # fmt: skip

Ask = Callable[..., CommandResult]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """A command on one cache, which knows what a first run of it has measured."""
    cache = tmp_path_factory.mktemp("questions") / "cache"

    def ask(*words: object, **variables: str) -> CommandResult:
        places = {"BRICKS_PUBLISHED": str(PUBLISHED), "COLUMNS": str(COLUMNS), **variables}
        return bricks(*words, "--cache", cache, **places)

    measured = ask("measure", "squeezenet", *ROUGH)
    assert measured.status == 0, measured.err
    return ask


def numbers_in(facts: Any) -> Iterator[float]:
    """Every number of a JSON document; of a list of words, how many they are."""
    match facts:
        case bool() | None | str():
            return
        case int() | float():
            yield abs(float(facts))
        case dict():
            for value in facts.values():
                yield from numbers_in(value)
        case list():
            yield len(facts)
            for value in facts:
                yield from numbers_in(value)


def derived(facts: Any) -> set[float]:
    """The numbers of ``facts``, and what sentences make of them: ends over values, ratios, sums."""
    values: set[float] = set(numbers_in(facts))

    def of(part: Any) -> None:
        if isinstance(part, dict):
            values.update(_peak_shares(part))
            if part.get("estimate_s") and part.get("batch"):
                values.add(part["estimate_s"] / part["batch"])
            for name, high in part.items():
                low, value = _ends(part, name)
                if low and value and isinstance(high, int | float):
                    values.update({high / value - 1, 1 - low / value})
            for inner in part.values():
                of(inner)
        elif isinstance(part, list):
            for inner in part:
                of(inner)

    of(facts)
    return values


def _peak_shares(part: dict[str, Any]) -> Iterator[float]:
    """How near to its roofline each operator of a model runs: the rest is what that would gain."""
    if {"gains", "operators"} <= part.keys():
        for gain in part["gains"]:
            for operator in part["operators"]:
                if gain["operator"] and operator["operator"].endswith(gain["operator"]):
                    yield 1 - gain["gain_s"] / operator["total_s"]


def _ends(part: dict[str, Any], name: str) -> tuple[Any, Any]:
    """The lower end and the value of the interval whose upper end is called ``name``."""
    if name == "high_s":
        values = (part.get(f"{stem}_s") for stem in ("estimate", "step", "gain"))
        return part.get("low_s"), next(filter(None, values), None)
    if name.endswith("_high_s"):
        stem = name.removesuffix("_high_s")
        return part.get(f"{stem}_low_s"), part.get(f"{stem}_s")
    if name.endswith("_high"):
        stem = name.removesuffix("_high")
        return part.get(f"{stem}_low"), part.get(stem)
    return None, None


def unproven(answer: str, values: set[float], *, also: set[float]) -> list[str]:
    """The numbers with a unit in ``answer`` that round none of ``values``."""
    missing = []
    for match in NUMBER.finditer(answer):
        bound, digits, unit = match.groups()
        if unit is None or bound or (unit == "times"):
            continue
        number = float(digits.replace(",", "")) * FACTORS[unit]
        step = FACTORS[unit] * 10.0 ** -len(digits.partition(".")[2])
        near = (abs(number - value) <= 0.51 * step for value in values | also)
        if not any(near):
            missing.append(match.group())
    return missing


def answered(ask: Ask, *words: object, also: set[float] | None = None, **variables: str) -> Any:
    """Ask a question for people and as JSON; the facts, after the answer was held to them."""
    shown = ask(*words, **variables)
    assert shown.status == 0, shown.err
    lines = shown.out.splitlines()
    assert max(map(len, lines)) <= COLUMNS
    first = " ".join(line.strip() for line in lines[: lines.index("")])
    facts = ask(*words, "--json", **variables).json
    assert first == " ".join(facts["answer"].split())
    rest = {name: value for name, value in facts.items() if name != "answer"}
    assert unproven(facts["answer"], derived(rest), also=also or set()) == [], facts["answer"]
    return facts


def test_1_how_fast_is_it_on_this_machine(ask: Ask) -> None:
    facts = answered(ask, "predict", "squeezenet", *ROUGH)
    (model,) = facts["models"]
    assert facts["answer"].startswith("squeezenet takes ") and " here with " in facts["answer"]
    assert model["low_s"] <= model["estimate_s"] <= model["high_s"]


def test_2_and_on_a_machine_that_i_do_not_have(ask: Ask) -> None:
    facts = answered(ask, "predict", "squeezenet", "--on", "zen5")
    assert " on amd-epyc-zen5-2c with " in facts["answer"]
    everywhere = answered(ask, "predict", "squeezenet", "--on", "all")
    assert {model["system"] for model in everywhere["models"]} >= {"amd-epyc-zen5-2c"}


@pytest.mark.skipif(
    "avx512f" not in fingerprint().vectors,
    reason="published processors have longer vectors, and block layouts of other batches by them",
)
def test_3_with_how_many_threads_and_at_which_batch(ask: Ask) -> None:
    words = ("--threads", "1,2", "--batch", "1,4", "--on", "zen5")
    facts = answered(ask, "predict", "squeezenet", *words)
    settings = {(model["threads"], model["batch"]) for model in facts["models"]}
    assert settings == {(1, 1), (1, 4), (2, 1), (2, 4)}
    best = min(facts["models"], key=lambda model: model["estimate_s"] / model["batch"])
    assert f"{best['threads']} thread" in facts["answer"]


def test_4_which_candidate_meets_my_slo_on_what_and_on_how_many_hosts(ask: Ask) -> None:
    words = ("--slo", "20ms", "--percentile", 99, "--qps", 50, "--on", "zen5")
    facts = answered(ask, "advise", *CANDIDATES, *words, also={0.02})
    assert all(name in facts["answer"] for name in CANDIDATES)


def test_5_which_runtime_is_faster_by_how_much(ask: Ask) -> None:
    words = ("--runtime", "onnxruntime,openvino", *ROUGH)
    facts = answered(ask, "predict", "squeezenet", *words)
    assert {model["runtime"] for model in facts["models"]} == {"onnxruntime", "openvino"}
    assert "onnxruntime" in facts["answer"] and "openvino" in facts["answer"]


def test_6_what_would_int8_give(ask: Ask) -> None:
    facts = answered(ask, "predict", "squeezenet", "--quantize", "int8", *ROUGH)
    assert "int8" in facts["answer"]
    assert len(facts["models"]) == 2  # in float32 too, for comparison


def test_7_how_long_does_training_take(ask: Ask) -> None:
    runtime_environments.python("torch")
    words = ("--ranks", "1,8", "--samples-per-epoch", 50000, "--epochs", 10)
    facts = answered(ask, "scale", "torch_two_tower_training", *words, *ROUGH, also={50000})
    assert [point["ranks"] for point in facts["ranks"]] == [1, 8]
    assert "epoch of 50,000 samples" in facts["answer"] and "8 ranks" in facts["answer"]


def test_8_how_many_tokens_a_second_does_a_language_model_make(ask: Ask) -> None:
    words = ("--quant", "int4", "--prompt", 64, "--new", 16)
    facts = answered(ask, "llm", "0.5B", *words, *ROUGH)
    assert ("tokens/s" in facts["answer"] and "GiB" in facts["answer"]) or "MiB" in facts["answer"]


def test_9_what_changed_between_two_targets(ask: Ask) -> None:
    old, new = "amd-epyc-zen5-2c/1-thread", "amd-epyc-zen5-2c/2-threads"
    facts = answered(ask, "diff", old, new, "squeezenet")
    assert facts["answer"].startswith("squeezenet takes ")


def test_10_where_does_the_time_go_and_what_would_replacing_it_gain(ask: Ask) -> None:
    facts = answered(ask, "explain", "squeezenet", *ROUGH)
    (model,) = facts["models"]
    assert facts["answer"].startswith("squeezenet spends ") and "Conv" in facts["answer"]
    assert model["gains"]


def test_11_how_fast_is_it_on_a_gpu(ask: Ask) -> None:
    facts = answered(ask, "predict", "torch_gpt2", "--on", "h100")
    (model,) = facts["models"]
    assert " on nvidia-h100-80gb-hbm3, limited by the host; " in facts["answer"]
    assert model["limited_by"] == "host" and model["graph_s"] < model["estimate_s"]


def test_11_a_card_that_nobody_knows_is_named_with_the_way_to_measure_it(ask: Ask) -> None:
    done = ask("predict", "torch_gpt2", "--on", "MI300")
    assert (done.status, done.out) == (2, "")
    assert "no MI300 among the known systems" in done.complaint
    assert "h100" in done.complaint and "bricks generate" in done.complaint


def test_12_which_of_many_architectures_are_fastest_and_how_sure(ask: Ask, tmp_path: Path) -> None:
    for width in range(64, 1024, 64):
        save(mlp(widths=(32, width, 10)), tmp_path, f"width_{width}.onnx")
    facts = answered(ask, "predict", tmp_path, "--effort", "quick", *ROUGH)
    assert len(facts["models"]) == 15
    assert "the fastest of 15 models here" in facts["answer"]


def test_answers_are_held_to_facts() -> None:
    facts = json.loads('{"estimate_s": 0.0382, "low_s": 0.0367, "high_s": 0.0397, "share": 1.0}')
    values = derived(facts)
    right, wrong = "x takes 38.2 ms (±4 %): 100 % measured.", "x takes 38.4 ms (±5 %): 99 %."
    assert unproven(right, values, also=set()) == []
    assert unproven(wrong, values, also=set()) == ["38.4 ms", "5 %", "99 %"]
