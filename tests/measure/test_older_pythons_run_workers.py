"""Python 3.9 runs the code of workers, which is written for newer ones."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
import subprocess
import sys
import typing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from commands import bricks

from bricks.measure.worker import older_python
from bricks.system.worker_packages import OLDEST

SOURCE = '''
"""A module."""
from __future__ import annotations
from dataclasses import dataclass, field
from itertools import chain, pairwise
from types import NoneType, UnionType
from typing import TypeAlias

Number: TypeAlias = int | float

@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """It has a default."""
    name: str = "base"

@dataclass(frozen=True, slots=True, kw_only=True)
class Own(Base):
    """Its field without a default follows one with a default."""
    size: int | None
    parts: list[int] = field(default_factory=list)

def kinds(value: int | str, *more: str | None) -> tuple[int | None, ...]:
    return isinstance(value, int | None), isinstance(value, (str, bytes)), 6 | 1, {1} | {2}

def pairs(a, b):
    return list(zip(a, b, strict=True)), list(zip(a, b)), list(pairwise(chain(a, b)))
'''


def module() -> dict[str, Any]:
    """The names of the module above, compiled as Python 3.9 gets it."""
    made = ModuleType("bricks_of_3_9")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, made.__name__, made)
        exec(compile(older_python.rewritten(SOURCE), "of_3_9.py", "exec"), vars(made))
    return vars(made)


def test_what_3_9_lacks_is_rewritten() -> None:
    names = module()
    assert names["__doc__"] == "A module."
    assert names["kinds"](3) == (True, False, 7, {1, 2})
    assert names["kinds"](None)[0] is True
    assert names["kinds"]("3")[:2] == (False, True)
    hints = typing.get_type_hints(names["kinds"])
    assert hints["value"] == typing.Union[int, str]  # noqa: UP007 – an object, not an annotation
    assert names["Number"] in (int | float, typing.Union[int, float])  # noqa: UP007
    assert (names["NoneType"], names["UnionType"]) == (type(None), typing.Union)


def test_lengths_are_compared() -> None:
    pairs = module()["pairs"]
    assert pairs([1, 2], (3, 4)) == ([(1, 3), (2, 4)], [(1, 3), (2, 4)], [(1, 2), (2, 3), (3, 4)])
    for unequal in (([1], [2, 3]), (iter([1]), iter([2, 3])), (iter([1, 2]), [3])):
        with pytest.raises(ValueError, match="zip"):
            pairs(*unequal)
    assert [*older_python.zipped(iter("ab"), [1, 2], strict=True)] == [("a", 1), ("b", 2)]
    for count in range(4):
        assert [*older_python.pairwise(range(count))] == [*itertools.pairwise(range(count))]


def test_fields_without_a_default_follow_others() -> None:
    own = module()["Own"]
    assert own(size=None) == own(name="base", size=None, parts=[])
    assert dataclasses.replace(own(size=1), size=2).size == 2
    with pytest.raises(TypeError, match="size"):
        own(name="no size")


@pytest.mark.slow
def test_a_program_runs_in_the_oldest_python(tmp_path: Path) -> None:
    python = shutil.which("python{}.{}".format(*OLDEST))
    asks = [str(python), "-c", "import torch"]
    if python is None or subprocess.run(asks, capture_output=True).returncode:
        pytest.skip("no such Python has PyTorch here")
    program = tmp_path / "own.py"
    program.write_text(
        "import torch\n"
        "def train(batch=4):\n"
        "    m = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())\n"
        "    return {'module': m, 'inputs': (torch.ones(batch, 8),),\n"
        "        'loss': lambda y: y.square().mean(),\n"
        "        'optimizer': torch.optim.SGD(m.parameters(), 0.1)}\n"
    )
    words = (f"{program}:train", "--threads", 1, "--python", python, "--cache", tmp_path / "cache")
    assert "bit by bit" in bricks("decompose", *words, "--verify").out
    done = bricks("compare", *words, "--json")
    assert done.status == 0, done.err
    assert done.json["runtime"]["python"] == "3.9"
    assert done.json["models"][0]["estimate_s"] > 0
