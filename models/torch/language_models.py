"""Transformers that continue text, GPT-2 and Llama: inference and training, float32 and bfloat16.

Each public function is a workload: it returns the module, its inputs, and for a training step the
loss and the optimiser. Tokens are random, since latency does not depend on them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class GPT2Block(nn.Module):
    """Causal self-attention and a pair of linear layers, each after layer normalisation."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features of the same shape (batch, length, width)."""
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class GPT2(nn.Module):
    """GPT-2 (Radford et al., 2019), 4 layers of 256; the embedding is the output layer too.

    ``mixed`` runs matrix products in bfloat16, the rest in float32.
    """

    vocabulary = 50_257

    def __init__(self, *, mixed: bool = False) -> None:
        super().__init__()
        width, depth, heads = 256, 4, 4
        self.mixed = mixed
        self.words = nn.Embedding(self.vocabulary, width)
        self.positions = nn.Embedding(1024, width)
        nn.init.normal_(self.words.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.blocks = nn.Sequential(*(GPT2Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the next token, of shape (batch, length, vocabulary)."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.mixed):
            x = self.words(tokens) + self.positions(torch.arange(tokens.shape[1]))
            return functional.linear(self.norm(self.blocks(x)), self.words.weight)


class Rotary(nn.Module):
    """Rotary position embedding (Su et al., 2021, arXiv:2104.09864)."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        frequencies = 10_000.0 ** -(torch.arange(0, width, 2) / width)
        angles = torch.outer(torch.arange(length).float(), frequencies).repeat(1, 2)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` of shape (batch, heads, length, width), each position turned by its angles."""
        length = x.shape[-2]
        first, second = x.chunk(2, -1)
        turned = torch.cat((-second, first), -1)
        return x * self.cosine[:length] + turned * self.sine[:length]


class GroupedQueryAttention(nn.Module):
    """Causal attention, several queries to a key (Ainslie et al., 2023, arXiv:2305.13245)."""

    def __init__(self, width: int, heads: int, key_heads: int) -> None:
        super().__init__()
        head = width // heads
        self.heads, self.key_heads = heads, key_heads
        self.query = nn.Linear(width, heads * head, bias=False)
        self.key = nn.Linear(width, key_heads * head, bias=False)
        self.value = nn.Linear(width, key_heads * head, bias=False)
        self.projection = nn.Linear(heads * head, width, bias=False)

    def forward(self, x: torch.Tensor, rotary: Rotary) -> torch.Tensor:
        """Features of the same shape (batch, length, width)."""
        query = rotary(self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2))
        key = rotary(self.key(x).unflatten(-1, (self.key_heads, -1)).transpose(1, 2))
        value = self.value(x).unflatten(-1, (self.key_heads, -1)).transpose(1, 2)
        attended = functional.scaled_dot_product_attention(
            query, self._repeated(key), self._repeated(value), is_causal=True
        )
        return self.projection(attended.transpose(1, 2).flatten(2))

    def _repeated(self, x: torch.Tensor) -> torch.Tensor:
        """Each head of ``x`` once for every query that it serves."""
        repeats = self.heads // self.key_heads
        return x[:, :, None].expand(-1, -1, repeats, -1, -1).flatten(1, 2)


class SwiGLU(nn.Module):
    """Two linear layers with a gate between them (Shazeer, 2020, arXiv:2002.05202)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features of the same shape."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class LlamaBlock(nn.Module):
    """Grouped-query attention and SwiGLU, each after normalisation."""

    def __init__(self, width: int, heads: int, key_heads: int, hidden: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(width, eps=1e-5)
        self.attention = GroupedQueryAttention(width, heads, key_heads)
        self.mlp_norm = nn.RMSNorm(width, eps=1e-5)
        self.mlp = SwiGLU(width, hidden)

    def forward(self, x: torch.Tensor, rotary: Rotary) -> torch.Tensor:
        """Features of the same shape (batch, length, width)."""
        x = x + self.attention(self.attention_norm(x), rotary)
        return x + self.mlp(self.mlp_norm(x))


class Llama(nn.Module):
    """Llama (Touvron et al., 2023, arXiv:2307.09288), 4 layers of 384."""

    vocabulary = 16_000

    def __init__(self) -> None:
        super().__init__()
        width, depth, heads, key_heads = 384, 4, 6, 2
        self.words = nn.Embedding(self.vocabulary, width)
        self.rotary = Rotary(width // heads, length=256)
        self.blocks = nn.ModuleList(
            LlamaBlock(width, heads, key_heads, hidden=1024) for _ in range(depth)
        )
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.classifier = nn.Linear(width, self.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the next token: in training at each position, else after the last one."""
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x, self.rotary)
        if not self.training:
            x = x[:, -1:]
        return self.classifier(self.norm(x))


def _tokens(module: GPT2 | Llama, batch: int, length: int) -> torch.Tensor:
    return torch.randint(module.vocabulary, (batch, length))


def _training(module: GPT2 | Llama, batch: int, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """A step that learns to predict the next of 64 tokens."""
    tokens = _tokens(module, batch, 65)
    words, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()
    return {
        "module": module,
        "inputs": (words,),
        "loss": lambda scores: functional.cross_entropy(scores.flatten(0, 1).float(), labels),
        "optimizer": optimizer,
    }


def gpt2(batch: int = 4) -> dict[str, Any]:
    """A small GPT-2 scores 64 tokens: inference."""
    torch.manual_seed(0)
    module = GPT2().eval()
    return {"module": module, "inputs": (_tokens(module, batch, 64),)}


def gpt2_training(batch: int = 2) -> dict[str, Any]:
    """A small GPT-2 learns from 64 tokens: training with AdamW, of kind fused."""
    torch.manual_seed(0)
    module = GPT2()
    return _training(module, batch, torch.optim.AdamW(module.parameters(), 6e-4, fused=True))


def gpt2_training_bfloat16(batch: int = 2) -> dict[str, Any]:
    """A small GPT-2 learns from 64 tokens: training in bfloat16 with AdamW."""
    torch.manual_seed(0)
    module = GPT2(mixed=True)
    return _training(module, batch, torch.optim.AdamW(module.parameters(), 6e-4))


def llama(batch: int = 4) -> dict[str, Any]:
    """A small Llama reads a prompt of 128 tokens (prefill): inference."""
    torch.manual_seed(0)
    module = Llama().eval()
    return {"module": module, "inputs": (_tokens(module, batch, 128),)}


def llama_bfloat16(batch: int = 4) -> dict[str, Any]:
    """A small Llama with weights in bfloat16 reads a prompt of 128 tokens (prefill): inference."""
    torch.manual_seed(0)
    module = Llama().eval().bfloat16()
    return {"module": module, "inputs": (_tokens(module, batch, 128),)}


def llama_training(batch: int = 2) -> dict[str, Any]:
    """A small Llama learns from 64 tokens: training with AdamW."""
    torch.manual_seed(0)
    module = Llama()
    optimizer = torch.optim.AdamW(module.parameters(), 3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    return _training(module, batch, optimizer)
