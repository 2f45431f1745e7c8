"""Which published architecture a name or a size means. Must not know how decoders are made."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from bricks.architectures.published import PUBLISHED
from bricks.errors import ModelError, nearest

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
    begun = [name for short, name in spellings.items() if _sizeless(name, short) == spelt]
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
    number, unit = _size(word)
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


def _size(word: str) -> tuple[float, float]:
    match = _SIZE.fullmatch(word)
    assert match is not None
    return float(match[1]), _UNITS[match[2].lower()]


def _nominal(name: str) -> float:
    """The number of parameters in a name."""
    *_, (number, unit) = re.findall(r"(?<=-)(\d+(?:\.\d+)?)([bm])(?=-|$)", name)
    return float(number) * _UNITS[unit]


def _spelt(word: str) -> str:
    """A name as the table spells names: lower case, hyphens; without the maker's folder."""
    name = word.rpartition("/")[2].lower().replace("_", "-").replace(" ", "-")
    return re.sub(r"-(hf|instruct|it|chat|base)$", "", name.removeprefix("meta-"))


def _sizeless(name: str, spelt: str) -> str:
    """A name without the size in it: ``gpt2`` for ``gpt2-124m``, ``mistral-v0.1``."""
    return re.sub(r"-\d+(?:\.\d+)?[bm](?=-|$)", "", spelt)


def _named(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:_FEW]) + (", …" if len(listed) > _FEW else "")
