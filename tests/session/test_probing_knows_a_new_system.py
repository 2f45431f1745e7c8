"""A system of which little is measured is known from others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from brick_examples import ideal_s, mixture
from commands import Here, disjoint_models

from bricks.predict.effort import MIN
from bricks.predict.features import CONVOLUTION, BrickFeatures
from bricks.predict.predictor import learn
from bricks.predict.transfer import SourceTarget, ZeroShotTransfer, expected_s, learn_transfer
from bricks.session.latency_model import kernel_features
from bricks.system.host_conditions import KERNELS, HostConditions

BRICKS = mixture()
KEYS = sorted(BRICKS)
GROUPS = {f"g{i}": set(KEYS[i::9]) for i in range(9)}


def noise(key: str, amount: float = 0.02) -> float:
    return math.exp(amount * math.sin(hash_of(key)))


def hash_of(key: str) -> float:
    return float(sum(ord(letter) * (i + 1) for i, letter in enumerate(key)))


def there(features: Mapping[str, BrickFeatures] = BRICKS) -> dict[str, float]:
    """Latencies on a system that is known well: not just what sizes suggest."""
    return {key: ideal_s(t) * math.exp(0.5 * math.sin(hash_of(key))) for key, t in features.items()}


def here_s(key: str, t: BrickFeatures, elsewhere_s: float) -> float:
    """On the new one, convolutions take 0.4 times as long, and others 1.5 times."""
    return elsewhere_s * (0.4 if t.kind == CONVOLUTION else 1.5) * noise(key)


def other(latency_s: Mapping[str, float], name: str = "other") -> SourceTarget:
    known = {key: t for key, t in BRICKS.items() if key in latency_s}
    predictor = learn(known, latency_s, GROUPS)
    assert predictor is not None
    return SourceTarget(name, latency_s, predictor, frozenset(t.operator for t in known.values()))


def errors(latency_s: Mapping[str, float], truth: Mapping[str, float]) -> np.ndarray:
    return np.array([abs(math.log(latency_s[key] / truth[key])) for key in latency_s])


def test_a_few_bricks_tell_how_a_system_differs_from_another() -> None:
    elsewhere_s = there()
    truth = {key: here_s(key, t, elsewhere_s[key]) for key, t in BRICKS.items()}
    probes = {key: truth[key] for key in KEYS[::5]}
    transfer = learn_transfer(BRICKS, probes, GROUPS, [other(elsewhere_s)])
    assert transfer is not None
    rest = {key: t for key, t in BRICKS.items() if key not in probes}
    predictions = transfer.predict(rest)
    off = errors({key: p.latency_s for key, p in predictions.items()}, truth)
    alone = learn(BRICKS, probes, GROUPS)
    assert alone is not None
    own_errors = errors({k: p.latency_s for k, p in alone.predict(rest).items()}, truth)
    assert np.median(off) < np.median(own_errors) / 2
    assert transfer.bias < alone.bias  # what families have in common is known from elsewhere too


def test_reference_kernels_scale_what_others_measured() -> None:
    usual_s = {"convolution": 7e-4, "product": 1.5e-3, "stream": 1.5e-3, "calls": 4.5e-5}
    source = replace(other(there()), host=HostConditions.of(usual_s))

    def factors(**slower: float) -> dict[str, float]:
        """How much longer bricks take where kernels take so many times as long."""
        host = HostConditions.of({name: s * slower.get(name, 1.0) for name, s in usual_s.items()})
        scaled = ZeroShotTransfer([source], host).predict(BRICKS)
        plain = ZeroShotTransfer([source]).predict(BRICKS)
        return {key: scaled[key].latency_s / of.latency_s for key, of in plain.items()}

    assert factors() == pytest.approx(dict.fromkeys(BRICKS, 1.0))
    slow = [*factors(**dict.fromkeys(KERNELS, 2.0)).values()]
    assert 1.4 < min(slow) <= max(slow) < 2.0  # unlike bricks, every kernel was chosen for swinging
    by_kind: dict[bool, list[float]] = {True: [], False: []}
    for key, factor in factors(convolution=3.0).items():
        by_kind[BRICKS[key].kind == CONVOLUTION].append(factor)
    assert np.median(by_kind[True]) > 1.3 * np.median(by_kind[False])


def test_what_others_measured_is_surer_once_reference_kernels_are_timed() -> None:
    host = HostConditions.of(dict.fromkeys(KERNELS, 1e-3))
    source, unknown = replace(other(there()), host=host), other(there())
    assert ZeroShotTransfer([source], host).bias < 0.6 * ZeroShotTransfer([source]).bias
    for sources in ([unknown], [source, unknown]):
        transfer = ZeroShotTransfer(sources, host)
        assert transfer.bias == ZeroShotTransfer([source]).bias
        assert transfer.predict(BRICKS) == ZeroShotTransfer(sources).predict(BRICKS)


def test_reference_kernels_of_one_node_are_bricks_that_can_be_predicted() -> None:
    found = kernel_features()
    assert {name: of.kind for name, of in found.items()} == {
        "convolution": "convolution", "product": "product", "stream": "stream",
    }  # fmt: skip
    everywhere = 2 * 9 * 64**2 * 28**2  # fewer taps are read at the border
    assert 0.95 * everywhere < found["convolution"].flops < everywhere


def test_intervals_hold_what_is_meant() -> None:
    elsewhere_s = there()
    truth = {key: here_s(key, t, elsewhere_s[key]) for key, t in BRICKS.items()}
    transfer = learn_transfer(
        BRICKS, {key: truth[key] for key in KEYS[::5]}, GROUPS, [other(elsewhere_s)]
    )
    assert transfer is not None
    predictions = transfer.predict({key: t for key, t in BRICKS.items() if key not in KEYS[::5]})
    inside = [
        abs(math.log(p.latency_s / truth[key])) < 1.96 * p.log_sd for key, p in predictions.items()
    ]
    assert 0.85 <= np.mean(inside)


def test_a_target_that_is_no_help_does_no_harm() -> None:
    elsewhere_s = there()
    truth = {key: here_s(key, t, elsewhere_s[key]) for key, t in BRICKS.items()}
    useless = {key: 1e-4 * math.exp(2 * math.sin(7 * hash_of(key))) for key in BRICKS}
    probes = {key: truth[key] for key in KEYS[::5]}
    rest = {key: t for key, t in BRICKS.items() if key not in probes}
    medians = []
    for others in ([other(elsewhere_s)], [other(elsewhere_s), other(useless, "useless")]):
        transfer = learn_transfer(BRICKS, probes, GROUPS, others)
        assert transfer is not None
        predictions = transfer.predict(rest)
        medians.append(np.median(errors({k: p.latency_s for k, p in predictions.items()}, truth)))
    assert medians[1] < 2 * medians[0]


def test_bricks_that_nobody_measured_are_predicted_less_surely() -> None:
    elsewhere_s = there()
    truth = {key: here_s(key, t, elsewhere_s[key]) for key, t in BRICKS.items()}
    unknown = set(KEYS[3::9])
    known_s = {key: s for key, s in elsewhere_s.items() if key not in unknown}
    probes = {key: truth[key] for key in KEYS[::5] if key not in unknown}
    transfer = learn_transfer(BRICKS, probes, GROUPS, [other(known_s)])
    assert transfer is not None
    predictions = transfer.predict({key: t for key, t in BRICKS.items() if key not in probes})
    surely = np.median([p.log_sd for key, p in predictions.items() if key not in unknown])
    assert np.median([predictions[key].log_sd for key in unknown]) > surely


def test_too_few_bricks_or_no_other_target_teach_nothing() -> None:
    elsewhere_s = there()
    few = {key: elsewhere_s[key] for key in KEYS[: MIN - 1]}
    assert learn_transfer(BRICKS, few, GROUPS, [other(elsewhere_s)]) is None
    assert learn_transfer(BRICKS, elsewhere_s, GROUPS, []) is None
    assert expected_s({}, [other(elsewhere_s)]) == {}


def test_before_anything_is_measured_the_others_tell_what_to_expect() -> None:
    elsewhere_s = there()
    latency_s = expected_s(BRICKS, [other(elsewhere_s)])
    assert latency_s == pytest.approx(elsewhere_s)
    twice = {key: 2 * s for key, s in elsewhere_s.items()}
    both = expected_s(BRICKS, [other(elsewhere_s), other(twice, "slower")])
    assert both == pytest.approx({key: s * math.sqrt(2) for key, s in elsewhere_s.items()})


def test_the_order_of_things_does_not_matter() -> None:
    elsewhere_s = there()
    probes = {key: elsewhere_s[key] for key in KEYS[::5]}
    backwards = dict(reversed(probes.items()))
    learned = [
        learn_transfer(bricks, known, GROUPS, [other(elsewhere_s)])
        for bricks, known in ((BRICKS, probes), (dict(reversed(BRICKS.items())), backwards))
    ]
    assert learned[0] is not None and learned[1] is not None
    rest = {key: BRICKS[key] for key in KEYS[1::5]}
    assert learned[0].predict(rest) == learned[1].predict(rest)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return disjoint_models(tmp_path_factory.mktemp("models"), 4)


def test_probing_measures_a_few_bricks_and_predicts_all_others(
    here: Here, models: list[Path]
) -> None:
    assert here("measure", *models, "--threads", 1).status == 0
    done = here("probe", *models, "--threads", 2, "--bricks", 36, "--json")
    assert done.status == 0
    facts = done.json
    assert (facts["models"], facts["bricks"]) == (4, 80)
    assert facts["probes"] == facts["measured_bricks"] == 36
    assert [teacher["runtime"]["threads"] for teacher in facts["teachers"]] == [1]
    assert 0 < facts["deviation"] < 1
    rows = here("predict", *models, "--threads", 2, "--no-measure", "--json").json["models"]
    assert [row["error"] for row in rows] == [None] * 4
    assert all(row["low_s"] < row["estimate_s"] < row["high_s"] for row in rows)


def test_probing_goes_without_other_targets_where_there_are_none(
    here: Here, models: list[Path]
) -> None:
    done = here("probe", *models, "--bricks", 40)
    assert done.status == 0
    assert "also learn from" not in done.out
    assert done.out.startswith("Half of 4 models are known to ±")


def test_too_few_probes_are_said_to_be_too_few(here: Here, models: list[Path]) -> None:
    done = here("probe", models[0], "--bricks", 30)
    assert done.status == 1
    assert "too few to predict others from" in done.complaint


@pytest.mark.slow
def test_a_model_that_cannot_be_read_does_not_stop_the_probe(
    here: Here, models: list[Path], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    done = here("probe", *models, broken, "--bricks", 40, "--json")
    assert done.status == 1
    assert done.json["probes"] == 40
    assert "broken.onnx" in done.complaint
