"""Published peaks of cards, and how cards are found by people's and by drivers' names."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from refusals import refused

from bricks.errors import NameUnknown
from bricks.system.cards import PRECISIONS, card_named, card_of, cards


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("h100", "NVIDIA H100 80GB HBM3"),
        ("H100", "NVIDIA H100 80GB HBM3"),
        ("nvidia-h100-80gb-hbm3", "NVIDIA H100 80GB HBM3"),
        ("H100 PCIe", "NVIDIA H100 PCIe"),
        ("h200", "NVIDIA H200"),
        ("nvidia-h200", "NVIDIA H200"),
        ("a100", "NVIDIA A100-SXM4-80GB"),
        ("a100/40gb", "NVIDIA A100-SXM4-40GB"),
        ("l40s", "NVIDIA L40S"),
        ("L40", "NVIDIA L40"),
        ("b200", "NVIDIA B200"),
        ("t4", "Tesla T4"),
        ("4090", "NVIDIA GeForce RTX 4090"),
        ("RTX4090", "NVIDIA GeForce RTX 4090"),
        ("GeForce 3090", "NVIDIA GeForce RTX 3090"),
    ],
)
def test_words_name_a_card(text: str, name: str) -> None:
    assert card_named(text).name == name


def test_no_two_cards_share_a_name() -> None:
    uses = Counter(name.lower() for card in cards() for name in (card.name, *card.aliases))
    assert set(uses.values()) == {1}


@pytest.mark.parametrize("text", ["h300", "", "geforce", "nvidia"])
def test_what_no_card_or_several_have_is_refused(text: str) -> None:
    with refused(NameUnknown, *([repr(text)] if text != "geforce" else ["RTX 4090", "RTX 5090"])):
        card_named(text)


def test_cards_are_found_by_what_drivers_call_them() -> None:
    h200 = card_named("h200")
    assert card_of(replace(h200.accelerator, power_limit_w=500.0)) == h200
    assert card_of(replace(h200.accelerator, name="A GPU of another maker")) is None


def test_peaks_are_dense_and_grow_as_precision_falls() -> None:
    for card in cards():
        peaks = [card.flops_per_s[name] for name in PRECISIONS if name in card.flops_per_s]
        assert peaks == sorted(peaks)
        assert 1e11 < card.bandwidth_bytes_per_s < 1e13
        assert card.source


def test_published_peaks_are_those_of_the_units_and_of_the_clock() -> None:
    for card in cards():
        gpu = card.accelerator
        assert gpu.clock_hz
        lanes = 64 if gpu.capability in {"7.0", "7.5", "8.0"} else 128
        peak = 2 * lanes * gpu.multiprocessors * gpu.clock_hz
        assert card.flops_per_s["fp32"] == pytest.approx(peak, rel=0.15), card.name


def test_nvlink_is_faster_the_newer_it_is_and_joins_cards_of_a_host() -> None:
    links = {a: card.nvlink for card in cards() if card.nvlink is not None for a in card.aliases}
    rates = [links[name].both_ways_bytes_per_s for name in ("v100", "a100", "h100", "b200")]
    assert rates == sorted(set(rates)) and rates[2] == 900e9
    for card in cards():
        if card.nvlink is not None:
            assert card.nvlink.cards >= 2
            assert card.nvlink.one_way_bytes_per_s < card.bandwidth_bytes_per_s
    bridged = [links[name] for name in ("a100-pcie", "h100-pcie", "a40")]
    assert {of.cards for of in bridged} == {2}
    assert links.keys().isdisjoint(("l40s", "t4", "rtx4090"))
