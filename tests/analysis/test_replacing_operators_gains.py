"""Gains of replacing operators: measured implementations have intervals, rooflines are bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commands import Here
from factories import conv_net, save
from store_examples import make_target

from bricks.analysis.explain import ExplainedModel
from bricks.analysis.explanation import BestImplementation, Explanation, Part
from bricks.analysis.operator_times import OWN, Gain, Replacement, gains, largest, operator_times
from bricks.compose.estimate import Estimate, Uncertainty
from bricks.compose.memory.peak import UnknownMemory
from bricks.predict.features import CONVOLUTION
from bricks.report.gains import explanation_answer, gain_text
from bricks.session.machine_peaks import Level, Peaks
from bricks.units.interval import Interval

PEAKS = Peaks(flops_per_s=100e9, bytes_per_s=10e9, levels=(Level(1 << 15, 10e9),))
TARGET = make_target()
NAMES = {"t1-other": "openvino 2026.4.1", TARGET.key: f"{OWN} fake"}


def part(**facts: Any) -> Part:
    """A part with one occurrence of 2 ms, whose roof is 1 ms of computing."""
    usual: dict[str, Any] = {
        "brick": "b1-a", "operators": ("Conv",), "shapes": "1 → 1", "occurrences": 1,
        "total_s": 2e-3, "share": 0.8, "predicted": False, "flops": 100_000_000,
        "bytes": 1_000_000, "peaks": PEAKS, "models": 0, "kind": CONVOLUTION,
        "net": Interval.around(2e-3, 2e-4),
    }  # fmt: skip
    made = usual | facts
    return Part(**{"comparable_flops": made["flops"], "moved_bytes": made["bytes"], **made})


def explanation(*parts: Part) -> Explanation:
    total_s = sum(each.total_s for each in parts)
    estimate = Estimate(
        "net", "executed", total_s, total_s * 0.9, total_s * 1.1, total_s, 0.0, 0.0, 1.0, (),
        Uncertainty(samples_s=0.1 * total_s),
    )  # fmt: skip
    return Explanation(estimate, PEAKS, parts, UnknownMemory("net", "not of interest"))


def gain_of(replacement: Replacement, *parts: Part) -> Gain:
    """The gain of replacing the first operator."""
    found = gains(explanation(*parts), TARGET.system, NAMES)
    return next(gain for gain in found if gain.replacement is replacement)


def said(*parts: Part) -> str:
    """The sentence about these parts."""
    of = explanation(*parts)
    model = ExplainedModel(
        model="net", estimate=of.estimate, explanation=of,
        gains=gains(of, TARGET.system, NAMES),
    )  # fmt: skip
    return explanation_answer(model, TARGET, TARGET)


def test_a_perfect_implementation_gains_at_most_what_lies_above_the_roofline() -> None:
    gain = gain_of(Replacement.ROOFLINE, part())
    assert gain.bound and gain.seconds == Interval(pytest.approx(1e-3), 0.0, pytest.approx(1e-3))
    none = part(brick="b1-b", total_s=1e-4, flops=None, net=None)
    assert gain_of(Replacement.ROOFLINE, part(), none).seconds.value == pytest.approx(1.1e-3)


def test_integers_of_8_bits_are_at_most_four_times_as_fast_without_tiles() -> None:
    assert gain_of(Replacement.INT8, part()).seconds.value == pytest.approx(2e-3 - 1e-3 / 4)
    streams = gains(explanation(part(kind="stream")), TARGET.system, NAMES)
    assert Replacement.INT8 not in {gain.replacement for gain in streams}


@pytest.mark.parametrize("kernel", ["QLinearConv", "MatMulInteger", "DynamicQuantizeMatMul"])
def test_what_computes_in_integers_gains_nothing_by_integers(kernel: str) -> None:
    found = gains(explanation(part(operators=(kernel,))), TARGET.system, NAMES)
    assert Replacement.INT8 not in {gain.replacement for gain in found}


def test_a_measured_implementation_has_the_errors_of_both() -> None:
    fastest = BestImplementation("b1-c", "t1-other", 0.5e-3, 1.5e-4)
    gain = gain_of(Replacement.IMPLEMENTATION, part(fastest=fastest))
    assert (gain.name, gain.bound) == ("openvino 2026.4.1", False)
    assert gain.seconds.value == pytest.approx(1.5e-3)
    assert gain.seconds.half_width == pytest.approx(2.5e-4)


def test_only_costly_operators_are_replaced() -> None:
    tiny = part(brick="b1-b", operators=("Relu",), share=0.01, total_s=2e-5)
    assert {gain.operator for gain in gains(explanation(part(), tiny), TARGET.system, NAMES)} == {
        "Conv"
    }


def test_what_is_known_comes_before_what_is_a_bound() -> None:
    bound = Gain("Conv", Replacement.ROOFLINE, None, Interval(2.0, 0.0, 2.0), bound=True)
    known = Gain("Conv", Replacement.IMPLEMENTATION, "a", Interval(1.0, 0.5, 1.5), bound=False)
    unsure = Gain("Conv", Replacement.IMPLEMENTATION, "a", Interval(1.0, -0.5, 2.5), bound=False)
    assert largest([bound, known]) is known
    assert largest([bound, unsure]) is bound
    assert largest([]) is None


def test_operators_of_all_domains_count_together() -> None:
    blocked = part(brick="b1-b", operators=("com.microsoft.nchwc.Conv",), share=0.2)
    (time,) = operator_times(explanation(part(), blocked))
    assert (time.operator, time.occurrences) == ("Conv", 2)
    assert time.total.value == pytest.approx(4e-3)
    assert time.total.half_width == pytest.approx(2e-4 * 2**0.5)
    assert (time.bound, time.peak_share) == ("compute", pytest.approx(0.5))


def test_the_answer_names_operator_roofline_and_gain() -> None:
    assert said(part()) == (
        "net spends 80 % of 2.00 ms (±10 %) in Conv, at 50 % of this machine's peak;"
        " a perfect Conv would gain at most 1.00 ms."
    )
    other = BestImplementation("b1-c", "t1-other", 0.5e-3, 1.5e-4)
    assert said(part(fastest=other)).endswith(
        "openvino 2026.4.1's Conv would gain 1.50 ms (±17 %)."
    )
    own = BestImplementation("b1-c", TARGET.key, 0.5e-3, 1.5e-4)
    assert said(part(fastest=own)).endswith("another kernel of fake would gain 1.50 ms (±17 %).")


def test_a_loss_and_what_is_unsure_are_no_gains() -> None:
    loss = Gain(None, Replacement.INT8, "int8", Interval(-1e-3, -2e-3, -5e-4), bound=False)
    unsure = Gain(None, Replacement.INT8, "int8", Interval(1e-3, -1e-3, 3e-3), bound=False)
    assert gain_text(loss) == "nothing: 1.00 ms longer"
    assert gain_text(unsure) == "unsure, up to 3.00 ms"
    assert largest([loss, unsure]) is None


def test_a_model_that_was_quantised_before_has_a_known_gain(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    path = save(conv_net(blocks=1), tmp_path, "net.onnx")

    def known() -> list[Any]:
        (row,) = here("explain", path, "--threads", 1, "--json").json["models"]
        return [gain["gain_s"] for gain in row["gains"] if gain["operator"] is None]

    assert known() == []
    facts = here("predict", path, "--threads", 1, "--quantize", "int8", "--json").json
    own_s, int8_s = (row["estimate_s"] for row in facts["models"])
    assert known() == [pytest.approx(own_s - int8_s)]
