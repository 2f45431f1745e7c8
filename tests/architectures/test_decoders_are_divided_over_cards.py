"""Each card has its part of a decoder's matrices, and parts add up to the whole."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from refusals import refused

from bricks.architectures.architecture import Architecture, divides, part_of
from bricks.architectures.published import PUBLISHED
from bricks.errors import ModelError

names = st.sampled_from(sorted(PUBLISHED))
counts = st.integers(1, 16)


@given(names)
def test_one_card_has_all(name: str) -> None:
    of = PUBLISHED[name]
    assert part_of(name, of, 1) == of


@given(names, counts)
@example("llama-13b", 5)  # which divide its heads, and not all else
def test_weights_of_all_cards_add_up_to_the_whole_and_to_copies(name: str, cards: int) -> None:
    of = PUBLISHED[name]
    if not divides(of, cards):
        with refused(ModelError, name, f"{cards} cards", "--tensor-parallel"):
            part_of(name, of, cards)
        return
    part = part_of(name, of, cards)
    copies = (cards - 1) * replicated(of)
    kv_copies = 2 * of.layers * kv_weights(of) * (cards * part.kv_heads - of.kv_heads)
    padding = vocabulary_weights(of) * (cards * part.vocabulary - of.vocabulary)
    assert cards * part.parameters == of.parameters + copies + kv_copies + padding


def replicated(of: Architecture) -> int:
    """Parameters that every card has: norms, biases added to sums, learned positions."""
    norm = of.hidden * (2 if of.layer_norm else 1)
    norms = (1 if of.parallel else 2) * (2 if of.post_norms else 1) * norm
    head_norms = 2 * of.head if of.head_norms else 0
    biases = 2 * of.hidden if of.bias else 0
    positions = 0 if of.rotary else of.positions * of.hidden
    return positions + of.layers * (norms + head_norms + biases) + norm


def kv_weights(of: Architecture) -> int:
    """Parameters of one head of keys, or of values, in a layer."""
    return of.head * (of.hidden + (of.qkv_bias or of.bias))


def vocabulary_weights(of: Architecture) -> int:
    """Parameters for each entry of the vocabulary."""
    return of.hidden * (1 if of.tied else 2) + of.head_bias


@given(names, counts)
def test_the_cache_is_divided_down_to_one_head_on_each_card(name: str, cards: int) -> None:
    of = PUBLISHED[name]
    if divides(of, cards):
        part = part_of(name, of, cards)
        assert part.kept == of.head * max(1, of.kv_heads // cards)
        assert part.heads % part.kv_heads == 0


@pytest.mark.parametrize("cards", [3, 5, 64])
def test_a_refusal_names_a_number_that_divides(cards: int) -> None:
    name = "llama-2-7b"
    with refused(ModelError, name, "32 heads", "11008") as caught:
        part_of(name, PUBLISHED[name], cards)
    named = int(str(caught.value).rpartition(" ")[2])
    assert divides(PUBLISHED[name], named) and named < cards
