"""The dimensions of a published language model, its parameters, and one card's part of it.

Cards divide a decoder as in Megatron-LM (Shoeybi et al., 2019): heads and columns of the
feed-forward network, the last matrix of either by its rows, and the vocabulary; normalisations are
on each card. Must not know any model by name, nor how cards exchange what they compute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bricks.errors import ModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A decoder of ``layers`` equal layers, each with attention and a feed-forward network.

    ``kv_heads`` fewer than ``heads`` are shared by groups of heads, each ``head`` elements wide.
    ``inner`` is the width of the feed-forward network, ``gated`` if a third matrix gates it, with
    the ``activation`` ``silu`` or ``gelu``. ``published`` is the number of parameters that the
    model's maker states.

    ``layer_norm`` is true for normalisation by mean and deviation with a shift, false for the root
    of the mean square. ``qkv_bias`` adds a bias to queries, keys and values, ``bias`` to every
    matrix, ``head_bias`` to the last. ``head_norms`` normalise each head of queries and keys,
    ``post_norms`` the results of attention and feed-forward network too. ``parallel`` layers
    compute both from one normalised value.

    ``rotary`` is the share of a head that is rotated; at 0, positions are learned. ``window``
    limits attention to so many tokens, in all layers but every ``full_every``-th. ``score_cap`` and
    ``logit_cap`` bound scores and logits by a hyperbolic tangent. ``tied`` is true if the embedding
    is the last matrix too.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    inner: int
    vocabulary: int
    published: float
    positions: int = 4096
    tied: bool = False
    gated: bool = True
    activation: str = "silu"
    layer_norm: bool = False
    qkv_bias: bool = False
    bias: bool = False
    head_bias: bool = False
    head_norms: bool = False
    post_norms: bool = False
    parallel: bool = False
    rotary: float = 1.0
    window: int | None = None
    full_every: int = 0
    score_cap: float = 0.0
    logit_cap: float = 0.0

    @property
    def kept(self) -> int:
        """The elements of a token's keys in one layer, and those of its values."""
        return self.kv_heads * self.head

    @property
    def mixed(self) -> int:
        """The elements of a token's queries in one layer."""
        return self.heads * self.head

    def window_of(self, layer: int) -> int:
        """The tokens that attention in ``layer`` is limited to; -1 if it is not."""
        full = self.full_every and (layer + 1) % self.full_every == 0
        return -1 if self.window is None or full else self.window

    @property
    def parameters(self) -> int:
        """The number of parameters, each once."""
        embeddings = self.vocabulary * self.hidden
        learned = 0 if self.rotary else self.positions * self.hidden
        head = (0 if self.tied else embeddings) + self.head_bias * self.vocabulary
        return embeddings + learned + self.layers * self._layer + self._norm + head

    @property
    def _layer(self) -> int:
        norms = (1 if self.parallel else 2) * (2 if self.post_norms else 1) * self._norm
        head_norms = 2 * self.head if self.head_norms else 0
        return self._attention + self._feed_forward + norms + head_norms

    @property
    def _attention(self) -> int:
        joint = self.mixed + 2 * self.kept
        biases = (self.qkv_bias or self.bias) * joint + self.bias * self.hidden
        return self.hidden * (joint + self.mixed) + biases

    @property
    def _feed_forward(self) -> int:
        matrices = 3 if self.gated else 2
        return matrices * self.hidden * self.inner + self.bias * (self.inner + self.hidden)

    @property
    def _norm(self) -> int:
        return self.hidden * (2 if self.layer_norm else 1)


def part_of(name: str, of: Architecture, cards: int) -> Architecture:
    """What each of ``cards`` has of the decoder ``name``; ``of`` itself on a single card.

    Where there are fewer key/value heads than cards, cards share copies of one; the vocabulary is
    padded to a multiple of the cards. Raises :class:`ModelError` for a number of cards that does
    not divide heads and columns.
    """
    if not divides(of, cards):
        most = max(count for count in range(1, cards) if divides(of, count))
        raise ModelError(
            f"{cards} cards cannot divide {name} equally, which has {of.heads} heads,"
            f" {of.kv_heads} of keys and values, and {of.inner} columns: give --tensor-parallel"
            f" {most}"
        )
    return replace(
        of,
        heads=of.heads // cards,
        kv_heads=max(1, of.kv_heads // cards),
        inner=of.inner // cards,
        vocabulary=-(-of.vocabulary // cards),
    )


def divides(of: Architecture, cards: int) -> bool:
    """Whether ``cards`` can divide the decoder."""
    copies = max(of.kv_heads, cards) % min(of.kv_heads, cards)
    return not (of.heads % cards or of.inner % cards or copies)
