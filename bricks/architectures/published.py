"""Published architectures by name: dimensions and parameters as their makers state them.

The dimensions are those of the ``config.json`` that each maker publishes with the weights, the
numbers of parameters those of its model card or paper. Among models of one nominal size, the first
is meant where a size alone is asked for. Must not know how decoders are made.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import partial

from bricks.architectures.architecture import Architecture
from bricks.errors import ModelError, nearest

_B = 1e9

# Llama 1 and 2 (Touvron et al., 2023), Llama 3 (Grattafiori et al., 2024), and others of that form.
_llama2 = partial(Architecture, head=128, vocabulary=32000)
_llama1 = partial(_llama2, positions=2048)
_llama3 = partial(Architecture, kv_heads=8, vocabulary=128256, positions=131072)
_smol = partial(Architecture, head=64, vocabulary=49152, tied=True, positions=8192)
_LLAMA = {
    "llama-2-7b": _llama2(layers=32, hidden=4096, heads=32, kv_heads=32, inner=11008,
                          published=6.74 * _B),
    "llama-2-13b": _llama2(layers=40, hidden=5120, heads=40, kv_heads=40, inner=13824,
                           published=13.02 * _B),
    "llama-2-70b": _llama2(layers=80, hidden=8192, heads=64, kv_heads=8, inner=28672,
                           published=68.98 * _B),
    "llama-3.1-8b": _llama3(layers=32, hidden=4096, heads=32, head=128, inner=14336,
                            published=8.03 * _B),
    "llama-3.1-70b": _llama3(layers=80, hidden=8192, heads=64, head=128, inner=28672,
                             published=70.6 * _B),
    "llama-3.1-405b": _llama3(layers=126, hidden=16384, heads=128, head=128, inner=53248,
                              published=406 * _B),
    "llama-3.2-1b": _llama3(layers=16, hidden=2048, heads=32, head=64, inner=8192, tied=True,
                            published=1.24 * _B),
    "llama-3.2-3b": _llama3(layers=28, hidden=3072, heads=24, head=128, inner=8192, tied=True,
                            published=3.21 * _B),
    "llama-3-8b": _llama3(layers=32, hidden=4096, heads=32, head=128, inner=14336, positions=8192,
                          published=8.03 * _B),
    "llama-3-70b": _llama3(layers=80, hidden=8192, heads=64, head=128, inner=28672, positions=8192,
                           published=70.6 * _B),
    "llama-7b": _llama1(layers=32, hidden=4096, heads=32, kv_heads=32, inner=11008,
                        published=6.7 * _B),
    "llama-13b": _llama1(layers=40, hidden=5120, heads=40, kv_heads=40, inner=13824,
                         published=13.0 * _B),
    "llama-33b": _llama1(layers=60, hidden=6656, heads=52, kv_heads=52, inner=17920,
                         published=32.5 * _B),
    "llama-65b": _llama1(layers=80, hidden=8192, heads=64, kv_heads=64, inner=22016,
                         published=65.2 * _B),
    "tinyllama-1.1b": _llama1(layers=22, hidden=2048, heads=32, kv_heads=4, head=64, inner=5632,
                              published=1.1 * _B),
    "smollm2-135m": _smol(layers=30, hidden=576, heads=9, kv_heads=3, inner=1536,
                          published=0.135 * _B),
    "smollm2-360m": _smol(layers=32, hidden=960, heads=15, kv_heads=5, inner=2560,
                          published=0.362 * _B),
    "smollm2-1.7b": _smol(layers=24, hidden=2048, heads=32, kv_heads=32, inner=8192,
                          published=1.71 * _B),
}  # fmt: skip

# Qwen2 (Yang et al., 2024), Qwen2.5 (2024) and Qwen3 (2025).
_qwen2 = partial(Architecture, qkv_bias=True, head=128, positions=32768)
_qwen3 = partial(Architecture, kv_heads=8, head=128, vocabulary=151936, head_norms=True,
                 positions=40960)  # fmt: skip
_half = _qwen2(layers=24, hidden=896, heads=14, kv_heads=2, head=64, inner=4864, vocabulary=151936,
               tied=True, published=0.494 * _B)  # fmt: skip
_one_and_a_half = _qwen2(layers=28, hidden=1536, heads=12, kv_heads=2, inner=8960,
                         vocabulary=151936, tied=True, published=1.54 * _B)  # fmt: skip
_seven = _qwen2(layers=28, hidden=3584, heads=28, kv_heads=4, inner=18944, vocabulary=152064,
                published=7.62 * _B)  # fmt: skip
_seventy_two = _qwen2(layers=80, hidden=8192, heads=64, kv_heads=8, inner=29568, vocabulary=152064,
                      published=72.7 * _B)  # fmt: skip
_QWEN = {
    "qwen2.5-0.5b": _half,
    "qwen2.5-1.5b": _one_and_a_half,
    "qwen2.5-3b": _qwen2(layers=36, hidden=2048, heads=16, kv_heads=2, inner=11008,
                         vocabulary=151936, tied=True, published=3.09 * _B),
    "qwen2.5-7b": _seven,
    "qwen2.5-14b": _qwen2(layers=48, hidden=5120, heads=40, kv_heads=8, inner=13824,
                          vocabulary=152064, published=14.8 * _B),
    "qwen2.5-32b": _qwen2(layers=64, hidden=5120, heads=40, kv_heads=8, inner=27648,
                          vocabulary=152064, published=32.8 * _B),
    "qwen2.5-72b": _seventy_two,
    "qwen2-0.5b": _half,
    "qwen2-1.5b": _one_and_a_half,
    "qwen2-7b": _seven,
    "qwen2-72b": _seventy_two,
    "qwen3-0.6b": _qwen3(layers=28, hidden=1024, heads=16, inner=3072, tied=True,
                         published=0.6 * _B),
    "qwen3-1.7b": _qwen3(layers=28, hidden=2048, heads=16, inner=6144, tied=True,
                         published=1.72 * _B),
    "qwen3-4b": _qwen3(layers=36, hidden=2560, heads=32, inner=9728, tied=True,
                       published=4.02 * _B),
    "qwen3-8b": _qwen3(layers=36, hidden=4096, heads=32, inner=12288, published=8.19 * _B),
    "qwen3-14b": _qwen3(layers=40, hidden=5120, heads=40, inner=17408, published=14.8 * _B),
    "qwen3-32b": _qwen3(layers=64, hidden=5120, heads=64, inner=25600, published=32.8 * _B),
}  # fmt: skip

# Mistral 7B (Jiang et al., 2023) and later ones.
_mistral = partial(Architecture, kv_heads=8, heads=32, head=128, positions=32768)
_MISTRAL = {
    "mistral-7b-v0.3": _mistral(layers=32, hidden=4096, inner=14336, vocabulary=32768,
                                published=7.25 * _B),
    "mistral-7b-v0.1": _mistral(layers=32, hidden=4096, inner=14336, vocabulary=32000, window=4096,
                                published=7.24 * _B),
    "mistral-nemo-12b": _mistral(layers=40, hidden=5120, inner=14336, vocabulary=131072,
                                 positions=131072, published=12.2 * _B),
    "mistral-small-24b": _mistral(layers=40, hidden=5120, inner=32768, vocabulary=131072,
                                  published=23.6 * _B),
}  # fmt: skip

# Gemma (2024), Gemma 2 (2024) and Gemma 3 (2025).
_gemma = partial(Architecture, activation="gelu", head=256, vocabulary=256000, tied=True,
                 positions=8192)  # fmt: skip
_gemma2 = partial(_gemma, post_norms=True, window=4096, full_every=2, score_cap=50.0,
                  logit_cap=30.0)  # fmt: skip
_GEMMA = {
    "gemma-2b": _gemma(layers=18, hidden=2048, heads=8, kv_heads=1, inner=16384,
                       published=2.51 * _B),
    "gemma-7b": _gemma(layers=28, hidden=3072, heads=16, kv_heads=16, inner=24576,
                       published=8.54 * _B),
    "gemma-2-2b": _gemma2(layers=26, hidden=2304, heads=8, kv_heads=4, inner=9216,
                          published=2.61 * _B),
    "gemma-2-9b": _gemma2(layers=42, hidden=3584, heads=16, kv_heads=8, inner=14336,
                          published=9.24 * _B),
    "gemma-2-27b": _gemma2(layers=46, hidden=4608, heads=32, kv_heads=16, head=128, inner=36864,
                           published=27.2 * _B),
    "gemma-3-1b": _gemma(layers=26, hidden=1152, heads=4, kv_heads=1, inner=6912,
                         vocabulary=262144, post_norms=True, head_norms=True, window=512,
                         full_every=6, positions=32768, published=1.0 * _B),
}  # fmt: skip

# Phi-1.5 and Phi-2 (2023), Phi-3 (Abdin et al., 2024) and Phi-4 (2024).
_phi = partial(Architecture, gated=False, activation="gelu", layer_norm=True, bias=True,
               head_bias=True, parallel=True, vocabulary=51200, positions=2048)  # fmt: skip
_PHI = {
    "phi-1.5-1.3b": _phi(layers=24, hidden=2048, heads=32, kv_heads=32, head=64, inner=8192,
                         rotary=0.5, published=1.42 * _B),
    "phi-2-2.7b": _phi(layers=32, hidden=2560, heads=32, kv_heads=32, head=80, inner=10240,
                       rotary=0.4, published=2.78 * _B),
    "phi-3-mini-3.8b": Architecture(layers=32, hidden=3072, heads=32, kv_heads=32, head=96,
                                    inner=8192, vocabulary=32064, window=2047,
                                    published=3.82 * _B),
    "phi-3-medium-14b": Architecture(layers=40, hidden=5120, heads=40, kv_heads=10, head=128,
                                     inner=17920, vocabulary=32064, window=2047,
                                     published=14.0 * _B),
    "phi-4-14b": Architecture(layers=40, hidden=5120, heads=40, kv_heads=10, head=128, inner=17920,
                              vocabulary=100352, positions=16384, published=14.7 * _B),
    "phi-4-mini-3.8b": Architecture(layers=32, hidden=3072, heads=24, kv_heads=8, head=128,
                                    inner=8192, vocabulary=200064, positions=131072, tied=True,
                                    rotary=0.75, published=3.84 * _B),
}  # fmt: skip

# GPT-2 (Radford et al., 2019), and DistilGPT2 (2019).
_gpt2 = partial(Architecture, head=64, gated=False, activation="gelu", layer_norm=True, bias=True,
                rotary=0.0, vocabulary=50257, positions=1024, tied=True)  # fmt: skip
_GPT2 = {
    "gpt2-124m": _gpt2(layers=12, hidden=768, heads=12, kv_heads=12, inner=3072,
                       published=0.124 * _B),
    "gpt2-medium-355m": _gpt2(layers=24, hidden=1024, heads=16, kv_heads=16, inner=4096,
                              published=0.355 * _B),
    "gpt2-large-774m": _gpt2(layers=36, hidden=1280, heads=20, kv_heads=20, inner=5120,
                             published=0.774 * _B),
    "gpt2-xl-1.5b": _gpt2(layers=48, hidden=1600, heads=25, kv_heads=25, inner=6400,
                          published=1.558 * _B),
    "distilgpt2-82m": _gpt2(layers=6, hidden=768, heads=12, kv_heads=12, inner=3072,
                            published=0.082 * _B),
}  # fmt: skip

PUBLISHED: Mapping[str, Architecture] = {
    **_LLAMA, **_QWEN, **_MISTRAL, **_GEMMA, **_PHI, **_GPT2,
}  # fmt: skip

_SIZE = re.compile(r"(\d+(?:\.\d+)?)([BMbm])")
_UNITS = {"b": 1e9, "m": 1e6}

# A size means the nearest model, if it is no further away than this factor.
_FARTHEST = 1.25

# An error names at most this many models.
_FEW = 6


def asked_as_size(word: str) -> bool:
    """Whether ``word`` is a number of parameters: ``7B``, ``1.5b`` or ``124M``."""
    return _SIZE.fullmatch(word) is not None


def architecture(word: str) -> str | None:
    """The published name that ``word`` means: a size, a name, or a name without its size.

    None where it is neither. Raises :class:`ModelError` for a size or a beginning of names that no
    model, or more than one, has.
    """
    if asked_as_size(word):
        return _of_size(word)
    spelt = _spelt(word)
    spellings = {_spelt(name): name for name in PUBLISHED}
    if spelt in spellings:
        return spellings[spelt]
    begun = [name for short, name in spellings.items() if _sizeless(short) == spelt]
    if len(begun) == 1:
        return begun[0]
    same_family = [name for short, name in spellings.items() if short.startswith(f"{spelt}-")]
    if same_family and len({_nominal(name) for name in same_family}) == 1:
        return same_family[0]
    if same_family:
        raise ModelError(f"{word} has several sizes: give one of {_named(same_family)}")
    return None


def nearest_name(word: str) -> str | None:
    """The published name that a mistyped ``word`` may mean."""
    return nearest(_spelt(word), list(PUBLISHED))


def _of_size(word: str) -> str:
    match = _SIZE.fullmatch(word)
    assert match is not None
    number, unit = float(match[1]), _UNITS[match[2].lower()]
    asked = number * unit
    for name in PUBLISHED:
        if math.isclose(_nominal(name), asked):
            return name
    name = min(PUBLISHED, key=lambda each: abs(math.log(_nominal(each) / asked)) if asked else 0)
    if not asked or max(_nominal(name) / asked, asked / _nominal(name)) > _FARTHEST:
        sizes = sorted({_nominal(each) for each in PUBLISHED})
        near = sorted(sizes, key=lambda size: abs(size - asked))[:_FEW]
        known = ", ".join(map(_size_text, sorted(near)))
        raise ModelError(f"no published model of {word} is known; sizes near it: {known}")
    return name


def _size_text(parameters: float) -> str:
    return f"{parameters / 1e9:g}B" if parameters >= 1e9 else f"{parameters / 1e6:g}M"


def _nominal(name: str) -> float:
    """The number of parameters in a name."""
    *_, (number, unit) = re.findall(r"(?<=-)(\d+(?:\.\d+)?)([bm])(?=-|$)", name)
    return float(number) * _UNITS[unit]


def _spelt(word: str) -> str:
    """A name as the table spells names: lower case, hyphens; without the maker's folder."""
    name = word.rpartition("/")[2].lower().replace("_", "-").replace(" ", "-")
    return re.sub(r"-(hf|instruct|it|chat|base)$", "", name.removeprefix("meta-"))


def _sizeless(spelt: str) -> str:
    """A name without the size in it: ``gpt2`` for ``gpt2-124m``, ``mistral-v0.1``."""
    return re.sub(r"-\d+(?:\.\d+)?[bm](?=-|$)", "", spelt)


def _named(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:_FEW]) + (", …" if len(listed) > _FEW else "")
