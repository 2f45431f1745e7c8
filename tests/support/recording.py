"""What every command prints as JSON over nine models, on a cache and suites that were kept.

The cache was written by version 0.1.0 on a made-up host with the fake runtime, whose latencies
depend on no clock; what it holds is not measured again, so that all that commands say of it can be
compared with what that version said. Commands build upon each other in one folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MODELS = (
    "alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet",
    "squeezenet", "vgg19", "zfnet512",
)  # fmt: skip
_ONE = ("--runtime", "fake", "--threads", "1")
_TWO = ("--runtime", "fake", "--threads", "2")
HOME, AWAY = "made-up-2c", "made-up-8c"
_HERE = "--cache", "cache"
_CUT_OTHERWISE = "--cache", "other"

# By name: a command, as it is typed.
COMMANDS: dict[str, tuple[str, ...]] = {
    "backends list": ("backends", "list"),
    "zoo list": ("zoo", "list"),
    "decompose": ("decompose", *MODELS, *_ONE, *_HERE),
    "decompose in threes": ("decompose", *MODELS, *_ONE, "--granularity", "3", *_CUT_OTHERWISE),
    "generate": ("generate", *MODELS, "--out", "new.zip", *_ONE, *_HERE),
    "generate privately": (
        "generate", "squeezenet", "--private", "--out", "new-own.zip", *_ONE, *_HERE,
    ),
    "measure": ("measure", *MODELS, *_ONE, *_HERE),
    "measure a suite": ("measure", "suite.zip", *_ONE, *_HERE),
    "measure a private suite": ("measure", "own.zip", *_ONE, *_CUT_OTHERWISE),
    "compare": ("compare", *MODELS, *_ONE, *_HERE),
    "compare in threes": (
        "compare", "squeezenet", "shufflenet", *_ONE, "--granularity", "3", *_CUT_OTHERWISE,
    ),
    "compare overlapping": (
        "compare", "squeezenet", *_ONE, "--granularity", "2+1", *_CUT_OTHERWISE,
    ),
    "compare side by side": ("compare", "inception_v1", *_ONE, "--workers", "2", *_HERE),
    "predict": ("predict", *MODELS, *_ONE, *_HERE),
    "predict without measuring": ("predict", *MODELS, *_TWO, "--no-measure", *_HERE),
    "predict a model never seen": ("predict", "mobilenet_v2", *_ONE, "--no-measure", *_HERE),
    "predict elsewhere": ("predict", *MODELS, *_ONE, "--on", AWAY, *_HERE),
    "probe": ("probe", *MODELS, *_ONE, "--bricks", "60", *_HERE),
    "explain": ("explain", "resnet50", "squeezenet", *_ONE, "--no-measure", *_HERE),
    "report": ("report", *MODELS, *_ONE, "--out", "report.html", *_HERE),
    "advise": ("advise", "squeezenet", "resnet50", "--slo", "45ms", *_ONE, *_HERE),
    "diff": ("diff", f"{HOME}/1-thread", f"{HOME}/fake-1/2-threads", *_HERE),
    "diff of hosts": ("diff", f"{HOME}/1-thread", AWAY, *_HERE),
    "zoo similarity": ("zoo", "similarity", *MODELS, *_ONE, *_HERE),
    "zoo coverage": ("zoo", "coverage", *MODELS, *_ONE, *_HERE),
    "systems": ("systems", *_HERE),
    "systems diff": ("systems", "diff", HOME, AWAY, *_HERE),
    "cache stats": ("cache", "stats", *_HERE),
    "cache verify": ("cache", "verify", *_HERE),
    "cache export": ("cache", "export", "new.jsonl", *_HERE),
    "cache import": ("cache", "import", "new.jsonl", *_HERE),
    "a model that is not there": ("predict", "sqeezenet", *_ONE, *_HERE),
}  # fmt: skip

# What was typed once, to make what is kept; by which of the hosts.
KEPT: tuple[tuple[str, tuple[str, ...]], ...] = (
    (HOME, ("generate", *MODELS, "--out", "suite.zip", *_ONE, *_HERE)),
    (HOME, ("generate", "squeezenet", "--private", "--out", "own.zip", *_ONE, *_HERE)),
    (HOME, ("compare", *MODELS, *_ONE, *_HERE)),
    (HOME, ("compare", "inception_v1", *_ONE, "--workers", "2", *_HERE)),
    (HOME, ("measure", "own.zip", *_ONE, *_CUT_OTHERWISE)),
    (HOME, ("measure", *MODELS, *_TWO, "--effort", "quick", *_HERE)),
    (HOME, COMMANDS["compare in threes"]),
    (HOME, COMMANDS["compare overlapping"]),
    (AWAY, ("measure", "squeezenet", "resnet50", "densenet121", *_ONE, *_HERE)),
)  # fmt: skip

# What clocks and installed versions decide.
_HERE_AND_NOW = {"wall_s", "bricks_wall_s", "models_wall_s", "speedup_wall", "size_bytes"}

Run = Callable[..., tuple[int, str]]


def host(name: str) -> Any:
    """A made-up host."""
    from bricks.system import System

    cores = int(name.removeprefix("made-up-").removesuffix("c"))
    return System(
        name=name,
        identity={
            "cpu": "Made Up", "cpu_vendor": "Nobody", "cpu_family": 1, "cpu_model": cores,
            "cpu_stepping": 0, "instruction_sets": ["avx2", "fma"],
            "instruction_sets_digest": "0123456789abcdef",
            "cache_bytes": {"L1d": 32768, "L2": 1 << 20, "L3": 1 << 25},
            "physical_cores": cores, "logical_cpus": cores, "cpu_quota": None, "memory_gib": 16,
            "memory_limit_gib": None, "architecture": "x86_64", "os": "Linux",
        },
        recorded={"kernel": "6.0", "governor": None, "turbo": None},
    )  # fmt: skip


def record(run: Run, folder: Path) -> Iterator[tuple[str, str]]:
    """Each command's name and what it prints; ``run`` gets words and yields status and output."""
    for name, words in COMMANDS.items():
        status, out = run(*in_folder(words, folder), "--json")
        yield name, f"exit {status}\n{general(out, folder)}"


def in_folder(words: tuple[str, ...], folder: Path) -> list[str]:
    """The words, with their files and caches in ``folder``."""
    placed = []
    for before, word in zip(("", *words), words, strict=False):
        is_path = before == "--cache" or word.endswith((".zip", ".jsonl", ".html"))
        placed.append(str(folder / word) if is_path else word)
    return placed


def general(text: str, folder: Path) -> str:
    """What a command printed, without what only holds here and now; not JSON, as it is."""
    text = text.replace(str(folder), "<folder>")
    try:
        facts = json.loads(text)
    except json.JSONDecodeError:
        return text
    assert json.dumps(facts, indent=2) + "\n" == text, "JSON is written in another way"
    return json.dumps(_general(facts), indent=2)


# Shares and widths in sentences: of what is predicted, their last digit may differ.
_IN_WORDS = re.compile(r"\d[\d.]*(?= (?:%|to|times))")


# Numbers in answers: the facts next to them are compared as numbers.
_NUMBERS = re.compile(r"(?<![\w.])[<>±]?\d[\d.,]*(?: (?:s|ms|µs|B|KiB|MiB|GiB)\b)?")


def _general(facts: Any, key: str = "") -> Any:
    if key in _HERE_AND_NOW and facts is not None:
        return f"<{key}>"
    if key == "advice" and isinstance(facts, str):
        return _IN_WORDS.sub("#", facts)
    if key == "answer" and isinstance(facts, str):
        return _NUMBERS.sub("#", facts)
    if isinstance(facts, dict):
        if facts.keys() >= {"installed", "environment"}:  # of a runtime
            return {k: v if k in ("name", "provider") else f"<{k}>" for k, v in facts.items()}
        # Levels of memory were added to the peaks since.
        return {k: _general(v, k) for k, v in facts.items() if (key, k) != ("peaks", "levels")}
    if isinstance(facts, list):
        return [_general(v, key) for v in facts]
    return facts
