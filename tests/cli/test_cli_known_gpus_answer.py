"""Known systems with a GPU answer about programs, on a host that has neither GPU nor PyTorch."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
import torch_environment
from commands import PATIENCE_S, Here
from device_calls import sum_brick
from plans import plan

from bricks.architectures.architecture import Architecture
from bricks.architectures.published import PUBLISHED
from bricks.compose.estimate import IncompleteEstimate
from bricks.compose.recompose import recompose
from bricks.session.options import Options
from bricks.session.targets import target_called
from bricks.session.workspace import Workspace
from bricks.sources.programs import Function
from bricks.store import Store
from bricks.store.published_index import folder

H100, H200 = "nvidia-h100-80gb-hbm3", "nvidia-h200"


@pytest.fixture(autouse=True)
def published(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measurements that ship with the package, and no environment of PyTorch."""
    monkeypatch.delenv("BRICKS_PUBLISHED", raising=False)
    monkeypatch.setenv("BRICKS_ENVIRONMENTS", "/nowhere")


def test_a_program_of_the_zoo_takes_its_calls_on_the_gpu(here: Here) -> None:
    ran = here("predict", "torch_gpt2", "--on", H100, "--json", runtime=None)
    (model,) = ran.json["models"]
    assert model["system"] == H100
    assert model["published_share"] == pytest.approx(1.0, abs=0.05)
    assert model["limited_by"] == "host"
    assert model["device_low_s"] < model["device_s"] < model["device_high_s"] < model["host_s"]
    assert model["device_s"] * 0.5 < model["graph_s"] < model["host_s"]
    assert model["low_s"] < model["estimate_s"] < model["high_s"]
    assert re.search(rf"torch_gpt2 takes .* on {H100}, limited by the host", ran.json["answer"])


def test_all_known_gpus_are_compared(here: Here) -> None:
    ran = here("predict", "torch_gpt2", "--on", f"{H100},{H200}", "--json", runtime=None)
    assert [model["system"] for model in ran.json["models"]] == [H100, H200]


def test_an_slo_is_met_on_a_gpu(here: Here) -> None:
    ran = here("advise", "torch_gpt2", "--on", "h200", "--slo", "1s", "--json", runtime="torch")
    (candidate,) = ran.json["candidates"]
    assert candidate["meets_slo"] == "yes"


def test_advice_is_about_all_systems_that_are_named(here: Here) -> None:
    words = ("advise", "torch_gpt2", "--slo", "1s", "--on")
    assert "meets 1 s on nvidia-a100-sxm4-80gb" in here(*words, "a100", runtime="torch").out
    assert "meets 1 s, fastest on" in here(*words, "h100,a100", runtime="torch").out
    refused = here(*words, "h100,zen5", runtime="torch")
    assert refused.status == 2 and "zen5" in refused.complaint


def test_time_goes_to_calls_that_no_cache_holds_under_their_own_names(here: Here) -> None:
    words = ("explain", "torch_two_tower_training", "--on", "h100", "--all")
    ran = here(*words, runtime=None)
    assert ran.status == 0
    assert re.search(r"^add  |^t  ", ran.out, re.MULTILINE)
    assert not re.search(r"^Tensor ", ran.out, re.MULTILINE)
    assert "another kernel of" not in ran.out  # the host takes its time, not a kernel


def test_what_decides_on_a_gpu_runs_on_a_gpu(here: Here) -> None:
    words = ("advise", "torch_gpt2_training", "--on", "h200", "--slo", "9ms", "--json")
    (deciding,) = here(*words, runtime="torch").json["deciding"]
    assert deciding["command"].endswith("--device cuda")


def test_explaining_tells_the_seconds_of_kernels_and_adds_up_to_the_answer(here: Here) -> None:
    words = ("explain", "torch_gpt2", "--on", "h100")
    (model,) = here(*words, "--json", runtime=None).json["models"]
    device_s = sum(brick["device_s"] for brick in model["bricks"])
    assert 0.8 * model["device_s"] < device_s <= model["device_s"]  # without gaps
    assert sum(brick["total_s"] for brick in model["bricks"]) == pytest.approx(model["estimate_s"])
    ran = here(*words, runtime=None)
    share, latency = next(
        (float(line.split()[1]) / 100, float(line.split()[4]))
        for line in ran.out.splitlines()
        if line.startswith("addmm ")
    )
    assert latency == pytest.approx(1e6 * share * model["estimate_s"], rel=0.01)
    assert re.search(r"^view .*  –$", ran.out, re.MULTILINE)  # starts no kernel


def test_a_report_has_programs_that_no_cache_holds_on_the_gpu(here: Here, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    Store.open(here.cache).close()
    words = ("report", "torch_gpt2", "torch_two_tower", "--on", "h100", "--out", page, "--json")
    ran = here.plain(*words, "--cache", here.cache)
    assert ran.status == 0, ran.complaint
    (target,) = ran.json["targets"]
    reported = {model["model"]: model["estimate_s"] for model in target["models"]}
    asked = here("predict", "torch_gpt2", "torch_two_tower", "--on", "h100", "--json", runtime=None)
    assert reported == pytest.approx(
        {model["model"]: model["estimate_s"] for model in asked.json["models"]}
    )
    assert "the host, since hosts differ" in page.read_text(encoding="utf-8")
    assert all("bricks measure" in model["advice"] for model in target["models"])


def test_measuring_there_narrows_what_another_host_took(here: Here) -> None:
    ran = here("predict", "torch_gpt2", "--on", "h100,h200", runtime=None)
    for system in (H100, H200):
        cause = rf"torch_gpt2 on {system}: .* because the host limits it.*"
        assert re.search(rf"{cause}: bricks measure torch_gpt2 ", " ".join(ran.out.split()))


def test_a_share_that_the_table_tells_is_not_repeated(here: Here) -> None:
    ran = here("predict", "torch_gpt2", "--on", "a100", "--all", runtime=None)
    assert "100 % predicted" in ran.out and "predicted from bricks" not in ran.out
    assert "around them" not in ran.out  # what is around calls is not known there


def test_a_program_of_ones_own_is_recorded_on_the_processor(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BRICKS_ENVIRONMENTS")
    torch_environment.python()
    ran = here(
        "predict", torch_environment.program("momentum"), "--on", "h100", "--json", runtime=None
    )
    (model,) = ran.json["models"]
    assert model["system"] == H100 and model["estimate_s"] >= model["device_s"] > 0.0
    assert model["published_share"] + model["predicted_share"] == pytest.approx(1.0)


def test_a_program_that_cannot_be_recorded_is_refused_with_the_reason(here: Here) -> None:
    ran = here("predict", "train.py:step", "--on", "h100", runtime=None)
    assert (ran.status, ran.out) == (1, "")
    assert "bricks backends install torch" in ran.complaint


def test_a_mistyped_card_does_not_wait_for_a_program(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, waited = Event(), []
    monkeypatch.setattr(Function, "record", lambda *of: waited.append(refused.wait(PATIENCE_S)))
    ran = here("predict", "train.py:step", "--on", "h1000", runtime=None)
    assert not waited and "did you mean h100?" in ran.complaint
    refused.set()


@pytest.mark.parametrize("word", ["torch_bert_trainin", "resnet5"])
def test_a_mistyped_model_gets_the_nearest_name(here: Here, word: str) -> None:
    ran = here("predict", word, "--on", "h100", runtime=None)
    assert ran.status == 1 and f"{word!r}: did you mean " in ran.complaint


def test_one_mistyped_model_of_several_does_not_stop_the_others(here: Here) -> None:
    ran = here("predict", "torch_gpt2", "torch_brt", "--on", "h100", runtime=None)
    assert ran.status == 1 and "torch_gpt2 takes" in ran.out
    # After a note, where published files were indexed first.
    assert "'torch_brt': did you mean torch_bert?" in ran.err.splitlines()[-1]


def test_steps_on_gpus_are_compared_by_predict(here: Here) -> None:
    assert here("predict", "torch_gpt2", "--on", "h100", runtime=None).status == 0
    ran = here("diff", "h100", "h200", "torch_gpt2", runtime=None)
    assert ran.status == 2 and f"'bricks predict MODEL --on {H100},{H200}'" in ran.complaint


def test_models_of_another_runtime_are_refused_in_one_line(here: Here) -> None:
    ran = here("predict", "squeezenet", "--on", "h100", runtime="onnxruntime")
    assert ran.status == 2
    assert "h100" in ran.complaint and "FILE.py:FUNCTION" in ran.complaint


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--on", "h1000"), "did you mean h100?"),
        (("--on", "nvida-h100"), "did you mean nvidia-h100?"),
        (("--on", "nvidia-a1000"), "did you mean nvidia-a100?"),
        (("--on", "h100", "--threads", "4"), "not measured with --threads 4, but with 1"),
        (("--device", "gpu"), "give cpu or cuda"),
    ],
)
def test_mistyped_cards_and_options_are_met_with_what_there_is(
    here: Here, words: tuple[str, ...], named: str
) -> None:
    ran = here.plain("predict", "torch_gpt2", *words, "--cache", here.cache)
    assert ran.status == 2
    assert named in ran.complaint


def test_a_card_that_nobody_measured_is_predicted_with_a_wide_interval(here: Here) -> None:
    words = ("predict", "torch_two_tower", "--json")
    (known,) = here(*words, "--on", "h100", runtime=None).json["models"]
    (other,) = here(*words, "--on", "a100", runtime=None).json["models"]
    assert other["system"] == "nvidia-a100-sxm4-80gb"
    assert other["predicted_share"] == pytest.approx(1.0)
    assert _relative(other, "device") > max(0.4, _relative(known, "device"))


def _relative(model: dict[str, float], lane: str) -> float:
    """The width of an interval, relative to its value."""
    return (model[f"{lane}_high_s"] - model[f"{lane}_low_s"]) / model[f"{lane}_s"]


def test_phases_of_a_training_step_add_up_to_it(here: Here) -> None:
    ran = here("predict", "torch_gpt2_training", "--on", "h200", "--json", runtime=None)
    (model,) = ran.json["models"]
    phases = {phase["phase"]: phase["estimate_s"] for phase in model["phases"]}
    assert phases.keys() == {"forward", "backward", "optimizer"}
    assert sum(phases.values()) == pytest.approx(model["estimate_s"])


def test_a_training_scales_over_gpus(here: Here) -> None:
    words = ("--ranks", "1,8", "--bandwidth", "3600Gbit", "--latency", "5us", "--json")
    ran = here("scale", "torch_gpt2_training", "--on", "h100", *words, runtime=None)
    one, eight = ran.json["ranks"]
    assert (one["ranks"], eight["ranks"]) == (1, 8)
    assert one["step_s"] <= eight["step_s"] and eight["samples_per_s"] > one["samples_per_s"]


def test_gpus_without_a_network_have_the_nvlink_of_their_data_sheet(here: Here) -> None:
    words = ("scale", "torch_gpt2_training", "--json", "--on")
    linked = here(*words, "h100", "--ranks", "1,8", runtime=None)
    assert linked.status == 0
    facts = linked.json
    assert (facts["network"], facts["network_origin"]) == ("NVLink", "published")
    assert (facts["bandwidth"], facts["latency_s"]) == (450e9, None)
    assert facts["network_most_ranks"] == 8
    eight = facts["ranks"][1]
    assert eight["origin"]["network"] == "published"
    more = here(*words, "h100", "--ranks", "8,16", runtime=None).json["ranks"]
    assert more[0]["step_s"] == eight["step_s"] < more[1]["step_s"]
    assert more[1]["origin"]["network"] == "stated"


def test_ranks_are_said_to_be_on_one_host_or_on_hosts_of_their_own(here: Here) -> None:
    words = ("scale", "torch_two_tower_training", "--ranks", "8,9", "--on", "h100")
    shown = " ".join(here(*words, runtime=None).out.split())
    assert "Up to 8 ranks are GPUs joined by NVLink" in shown and "hosts of their own" in shown


def test_a_program_with_calls_that_no_rule_translates_has_no_estimate(here: Here) -> None:
    ran = here("predict", "torch_lstm", "--on", "h200", runtime=None)
    assert ran.status == 1
    assert "torch_lstm" in ran.complaint and "mkldnn_rnn_layer" in ran.complaint


def test_calls_unlike_any_that_was_measured_are_named(tmp_path: Path) -> None:
    options = Options(runtime="torch", elsewhere=True)
    known, other = sum_brick(1 << 10, "exp"), sum_brick(1 << 10, "_linalg_svd")
    step = plan([(known.key, [0], [1]), (other.key, [1], [2])])
    with Workspace.open(tmp_path / "cache", options) as workspace:
        workspace.plans.know({known.key: known, other.key: other})
        target = target_called(workspace, "h100")
        found = recompose(workspace.estimators.of(step, target).basis(step, {}, target))
    assert isinstance(found, IncompleteEstimate)
    (gap,) = found.gaps
    assert gap.brick == other.key and "cuda" in gap.reason
    assert found.lacks.startswith("_linalg_svd (no known GPU ran such calls")


def test_plans_on_gpus_are_known_once_a_program_was_translated(tmp_path: Path) -> None:
    options = Options(runtime="torch", elsewhere=True)
    with Workspace.open(tmp_path / "cache", options) as workspace:
        model, target = workspace.read("torch_gpt2"), target_called(workspace, "h100")
        assert workspace.plans.known_plan(model.digest, target=target) is None
        workspace.plans.translate(model)
        plan = workspace.plans.known_plan(model.digest, target=target)
    assert plan is not None and plan.model == "torch_gpt2"


def test_the_published_files_are_there() -> None:
    assert {f"{H100}.jsonl.xz", f"{H200}.jsonl.xz"} <= {path.name for path in folder().iterdir()}


LAYERS = 4


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Architecture:
    """A published architecture with few of its layers, which are all alike."""
    of = replace(PUBLISHED["tinyllama-1.1b"], layers=LAYERS)
    monkeypatch.setitem(PUBLISHED, "tinyllama-1.1b", of)
    return of


def test_a_published_architecture_generates_text_on_gpus(here: Here, tiny: Architecture) -> None:
    words = ("llm", "tinyllama-1.1b", "--on", "h100", "--prompt", 64, "--new", 3)
    one = here(*words, "--json", runtime=None).json
    assert one["system"]["name"] == H100
    assert one["weight_bytes"] == pytest.approx(2 * tiny.parameters, rel=0.02)
    assert one["cache_bytes"] == 66 * 2 * LAYERS * 4 * 64 * 2
    assert one["limited_by"] == "host"
    assert one["decode_tokens_per_s"] < one["graph_tokens_per_s"]
    assert one["steps"][0]["device_s"] < one["steps"][0]["host_s"]
    assert (one["tensor_parallel"], one["network"], one["collectives"]) == (1, None, None)
    refusal = here(*words, "--quant", "int4", runtime=None)
    assert refusal.status == 2 and "--quant int4" in refusal.complaint

    two = here(*words, "--json", "--tensor-parallel", 2, runtime=None).json
    assert (two["tensor_parallel"], two["network"], two["network_origin"]) == (
        2, "NVLink", "published",
    )  # fmt: skip
    assert two["cache_bytes"] == one["cache_bytes"] / 2
    assert two["weight_bytes"] == pytest.approx(one["weight_bytes"] / 2, rel=0.01)
    assert two["needed_bytes"] < 0.6 * one["needed_bytes"]
    assert two["collectives"] == 2 * LAYERS + 2
    assert 0 < two["collectives_low_s"] < two["collectives_s"] < two["steps"][0]["graph_s"]
    assert two["steps"][0]["device_s"] > two["collectives_s"]
    # Collectives cost the host more than it saves by smaller matrices.
    assert two["steps"][0]["host_s"] > one["steps"][0]["host_s"]


def test_a_model_that_no_card_holds_is_told_how_many_do(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = PUBLISHED["llama-2-13b"]  # with a tenth of its layers, which are wider
    monkeypatch.setitem(PUBLISHED, "llama-2-13b", replace(of, layers=4, inner=15 * of.inner))
    words = ("llm", "llama-2-13b", "--on", "a30", "--prompt", 8, "--new", 1, "--json")
    alone = here(*words, runtime=None).json
    assert alone["fitting_cards"] == 2
    assert re.search(r"has 2\d\.\d GiB: --tensor-parallel 2 fits\. With enough", alone["answer"])


def test_cards_that_cannot_divide_are_refused_in_one_line(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = replace(PUBLISHED["llama-2-7b"], layers=2)
    monkeypatch.setitem(PUBLISHED, "llama-2-7b", few)
    for words, *facts in (
        (("7B", "--on", "l40s", "--tensor-parallel", 8), "nvidia-l40s", "--bandwidth"),
        (("7B", "--on", "h100", "--tensor-parallel", 16), "8 cards", "--bandwidth"),
        (("7B", "--on", "h100", "--tensor-parallel", 3), "llama-2-7b", "32 heads", "3 cards"),
        (("7B", "--on", "h100", "--tensor-parallel", 0), "--tensor-parallel"),
        (("7B", "--on", "h100", "--bandwidth", "1Gbit", "--latency", "1us"), "--tensor-parallel"),
        (("7B", "--on", "h100", "--tensor-parallel", 2, "--latency", "1us"), "--bandwidth"),
        (("7B", "--check", "--tensor-parallel", 2), "--check", "--tensor-parallel"),
        (("7B", "--tensor-parallel", 2), "--tensor-parallel 2", "7B", "--on h100"),
        (("decoder_gpt2", "--tensor-parallel", 2), "decoder_gpt2", "--tensor-parallel 2"),
    ):
        ran = here("llm", *words, runtime=None)
        assert ran.status in (1, 2), words
        assert all(fact in ran.complaint for fact in facts), ran.complaint
