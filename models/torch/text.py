"""Transformers that read text, BERT and T5: inference and training steps.

Each public function is a workload: it returns the module, its inputs, and for a training step the
loss and the optimiser. Tokens and labels are random, since latency does not depend on them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional


def _split(x: torch.Tensor, heads: int) -> torch.Tensor:
    """From (batch, length, width) to (batch, heads, length, width of a head)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _merge(x: torch.Tensor) -> torch.Tensor:
    """From (batch, heads, length, width of a head) to (batch, length, width)."""
    return x.transpose(1, 2).flatten(2)


class BertLayer(nn.Module):
    """Self-attention and a pair of linear layers, each before layer normalisation."""

    def __init__(self, width: int, heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.projection = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Features of the same shape; ``mask`` is false for tokens that nothing attends to."""
        attended = functional.scaled_dot_product_attention(
            _split(self.query(x), self.heads),
            _split(self.key(x), self.heads),
            _split(self.value(x), self.heads),
            mask,
            dropout_p=self.dropout.p if self.training else 0.0,
        )
        x = self.attention_norm(x + self.dropout(self.projection(_merge(attended))))
        return self.norm(x + self.dropout(self.mlp(x)))


class Bert(nn.Module):
    """BERT (Devlin et al., 2019, arXiv:1810.04805), of the size Mini, classifying sentences."""

    vocabulary, classes = 30_522, 2

    def __init__(self) -> None:
        super().__init__()
        width, depth, heads = 256, 4, 4
        self.words = nn.Embedding(self.vocabulary, width)
        self.positions = nn.Embedding(512, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(0.1)
        self.layers = nn.ModuleList(BertLayer(width, heads) for _ in range(depth))
        self.pooler = nn.Linear(width, width)
        self.classifier = nn.Linear(width, self.classes)

    def forward(
        self, tokens: torch.Tensor, segments: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Scores of the classes; all inputs are of shape (batch, length)."""
        positions = torch.arange(tokens.shape[1])
        x = self.words(tokens) + self.segments(segments) + self.positions(positions)
        x = self.dropout(self.norm(x))
        for layer in self.layers:
            x = layer(x, mask[:, None, None, :])
        pooled = torch.tanh(self.pooler(x[:, 0]))
        return self.classifier(self.dropout(pooled))


class ScaleNorm(nn.Module):
    """Division by the root mean square, without bias, as T5 normalises."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features of the same shape."""
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class RelativeBias(nn.Module):
    """What a pair of positions adds to attention scores: a learned number for each bucket.

    A bucket holds one distance where positions are near, a range of distances where they are far.
    With ``causal``, later positions get minus infinity.
    """

    def __init__(self, heads: int, length: int, *, causal: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(32, heads)
        self.register_buffer("buckets", _buckets(length, causal=causal), persistent=False)
        mask = torch.full((length, length), -math.inf).triu(1) if causal else None
        self.register_buffer("mask", mask, persistent=False)

    def forward(self) -> torch.Tensor:
        """The bias, of shape (heads, length, length)."""
        bias = self.table(self.buckets).permute(2, 0, 1)
        return bias if self.mask is None else bias + self.mask


def _buckets(length: int, *, causal: bool) -> torch.Tensor:
    positions = torch.arange(length)
    distance = positions[:, None] - positions
    count, first = 32, torch.zeros_like(distance)
    if causal:
        distance = distance.clamp(min=0)
    else:
        count = 16
        first = count * (distance < 0)
        distance = distance.abs()
    exact = count // 2
    ranges = torch.log(distance.clamp(min=1) / exact) / math.log(128 / exact) * (count - exact)
    far = (exact + ranges.long()).clamp(max=count - 1)
    return first + torch.where(distance < exact, distance, far)


class T5Attention(nn.Module):
    """Attention from ``x`` to ``memory``, whose scores are not scaled."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.projection = nn.Linear(width, width, bias=False)

    def forward(
        self, x: torch.Tensor, memory: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Features of the shape of ``x``; ``bias`` is added to the scores."""
        query = _split(self.query(x), self.heads)
        key = _split(self.key(memory), self.heads)
        value = _split(self.value(memory), self.heads)
        scores = query @ key.transpose(-1, -2)
        if bias is not None:
            scores = scores + bias
        return self.projection(_merge(scores.softmax(-1) @ value))


class T5Layer(nn.Module):
    """A layer of the encoder, or with ``cross_attention`` one of the decoder."""

    def __init__(self, width: int, heads: int, *, cross_attention: bool) -> None:
        super().__init__()
        self.norm = ScaleNorm(width)
        self.attention = T5Attention(width, heads)
        if cross_attention:
            self.cross_norm = ScaleNorm(width)
            self.cross_attention = T5Attention(width, heads)
        self.mlp = nn.Sequential(
            ScaleNorm(width),
            nn.Linear(width, 4 * width, bias=False),
            nn.ReLU(),
            nn.Linear(4 * width, width, bias=False),
        )

    def forward(
        self, x: torch.Tensor, bias: torch.Tensor, memory: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Features of the shape of ``x``; ``memory`` is what the encoder gave to the decoder."""
        normed = self.norm(x)
        x = x + self.attention(normed, normed, bias)
        if memory is not None:
            x = x + self.cross_attention(self.cross_norm(x), memory)
        return x + self.mlp(x)


class T5(nn.Module):
    """T5 (Raffel et al., 2020, arXiv:1910.10683), of the size Mini."""

    vocabulary, source_length, target_length = 32_128, 64, 32

    def __init__(self) -> None:
        super().__init__()
        width, depth, heads = 256, 4, 4
        self.words = nn.Embedding(self.vocabulary, width)
        self.encoder_bias = RelativeBias(heads, self.source_length, causal=False)
        self.encoder = nn.ModuleList(
            T5Layer(width, heads, cross_attention=False) for _ in range(depth)
        )
        self.encoder_norm = ScaleNorm(width)
        self.decoder_bias = RelativeBias(heads, self.target_length, causal=True)
        self.decoder = nn.ModuleList(
            T5Layer(width, heads, cross_attention=True) for _ in range(depth)
        )
        self.decoder_norm = ScaleNorm(width)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Scores of the next token, of shape (batch, length of target, vocabulary)."""
        memory, bias = self.words(source), self.encoder_bias()
        for layer in self.encoder:
            memory = layer(memory, bias)
        memory = self.encoder_norm(memory)
        x, bias = self.words(target), self.decoder_bias()
        for layer in self.decoder:
            x = layer(x, bias, memory)
        # The embedding is the output layer too, hence the scale.
        x = self.decoder_norm(x) * x.shape[-1] ** -0.5
        return functional.linear(x, self.words.weight)


def _sentences(batch: int, length: int = 128) -> tuple[torch.Tensor, ...]:
    """Tokens, segments, and a mask that hides none."""
    tokens = torch.randint(Bert.vocabulary, (batch, length))
    segments = torch.zeros(batch, length, dtype=torch.long)
    return tokens, segments, torch.ones(batch, length, dtype=torch.bool)


def _translation(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens of a source and of its target."""
    source = torch.randint(T5.vocabulary, (batch, T5.source_length))
    return source, torch.randint(T5.vocabulary, (batch, T5.target_length))


def bert(batch: int = 4) -> dict[str, Any]:
    """BERT-Mini classifies sentences of 128 tokens: inference."""
    torch.manual_seed(0)
    return {"module": Bert().eval(), "inputs": _sentences(batch)}


def bert_training(batch: int = 4) -> dict[str, Any]:
    """BERT-Mini classifies sentences of 128 tokens: training with AdamW, of kind foreach."""
    torch.manual_seed(0)
    module = Bert()
    labels = torch.randint(Bert.classes, (batch,))
    return {
        "module": module,
        "inputs": _sentences(batch),
        "loss": lambda scores: functional.cross_entropy(scores, labels),
        "optimizer": torch.optim.AdamW(module.parameters(), 5e-5, foreach=True),
    }


def t5(batch: int = 4) -> dict[str, Any]:
    """T5 reads 64 tokens and scores 32: inference."""
    torch.manual_seed(0)
    return {"module": T5().eval(), "inputs": _translation(batch)}


def t5_training(batch: int = 4) -> dict[str, Any]:
    """T5 reads 64 tokens and learns to write 32: training with Adafactor."""
    torch.manual_seed(0)
    module = T5()
    source, labels = _translation(batch)
    target = functional.pad(labels[:, :-1], (1, 0))  # each position sees the tokens before it
    return {
        "module": module,
        "inputs": (source, target),
        "loss": lambda scores: functional.cross_entropy(scores.flatten(0, 1), labels.flatten()),
        "optimizer": torch.optim.Adafactor(module.parameters(), 0.01),
    }
