"""All commands by name: the module of each, and the first sentence of its help.

A command is imported when it is called, or when its help is shown; the list of all commands needs
only this module. A test compares the sentences with the commands' own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command in ``bricks.cli``: its ``module``, and the ``summary`` that starts its help."""

    module: str
    summary: str


# By the titles of the sections that list all commands.
SECTIONS: Mapping[str, Mapping[str, CommandEntry]] = {
    "Prepare": {
        "zoo": CommandEntry("zoo", "The models that ship with bricks, and their recipes."),
        "backends": CommandEntry(
            "backends", "The runtimes that models can be measured with, and their install."
        ),
        "decompose": CommandEntry(
            "decompose", "Split models into bricks, and count how many of them are unique."
        ),
    },
    "Measure": {
        "measure": CommandEntry(
            "measure", "Measure the bricks of models, each once per system and runtime."
        ),
        "probe": CommandEntry(
            "probe",
            "Measure the few bricks that tell most of this system, and predict all others from"
            " them.",
        ),
        "network": CommandEntry(
            "network", "Networks between the processes of a data-parallel training."
        ),
    },
    "Predict": {
        "predict": CommandEntry(
            "predict", "Predict how fast models run, from measurements of their bricks."
        ),
        "compare": CommandEntry(
            "compare",
            "Compare estimates with runs of the whole models, sampled in turn with their bricks.",
        ),
        "scenario": CommandEntry(
            "scenario",
            "Predict a served model's latency under load, its throughput, and the rate it can"
            " keep.",
        ),
        "llm": CommandEntry(
            "generation",
            "Predict text that a decoder generates token by token: latencies of tokens, rates,"
            " and memory.",
        ),
        "train": CommandEntry(
            "train",
            "Train a PyTorch program until it is accurate, and tell how long that takes and was"
            " to take.",
        ),
        "scale": CommandEntry(
            "scale",
            "Predict a PyTorch training on several ranks, from the bricks of its step and a"
            " network.",
        ),
        "advise": CommandEntry(
            "advise",
            "Tell on which known systems models keep a latency, how sure that is, and what it"
            " costs.",
        ),
    },
    "Compare runtimes": {
        "operators": CommandEntry(
            "operators",
            "Compare operators over runtimes: latency, rates beside the peaks, and accuracy.",
        ),
        "networks": CommandEntry(
            "networks",
            "Compare what whole models compute over runtimes, and find the first operator that"
            " errs.",
        ),
    },
    "Look": {
        "explain": CommandEntry(
            "explain",
            "Tell where the time of models goes: operators and their bricks, the hottest first.",
        ),
        "report": CommandEntry(
            "report", "Write what the cache knows of models and systems into one HTML file."
        ),
        "diff": CommandEntry(
            "diff",
            "Tell which bricks and models are slower or faster on one target than on another.",
        ),
        "systems": CommandEntry(
            "systems",
            "List the systems in the cache and the published ones, and say which one this host is.",
        ),
        "cache": CommandEntry("cache", "Look into the cache of measurements, and check it."),
    },
    "Share": {
        "generate": CommandEntry(
            "generate",
            "Write the suite of models: all that measuring them elsewhere needs, without weights.",
        ),
        "web": CommandEntry(
            "web",
            "Serve pages that tell what a model takes on every known system, until interrupted.",
        ),
        "worker": CommandEntry(
            "worker",
            "Measure on this host what 'bricks measure --scheduler' asks for, until interrupted.",
        ),
    },
}
ENTRIES: Mapping[str, CommandEntry] = {
    name: entry for entries in SECTIONS.values() for name, entry in entries.items()
}


class LazyCommands(Mapping[str, Any]):
    """Typer's commands by name, each imported and built when it is first looked up.

    ``prepare`` is called with each of them. Studies of other packages come after the commands of
    bricks, which they cannot replace.
    """

    def __init__(self, prepare: Callable[[Any], Any]) -> None:
        """No command is built yet."""
        self._prepare = prepare
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """The command; raises :class:`KeyError` for an unknown name."""
        if name not in self._built:
            function = _own(ENTRIES[name], name) if name in ENTRIES else _of_others(name)
            self._built[name] = self._prepare(_typer_command(name, function))
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        """Names of the commands of bricks, then of others' studies."""
        from bricks.studies.offer import names

        yield from ENTRIES
        yield from (name for name in names() if name not in ENTRIES)

    def __len__(self) -> int:
        """The number of commands."""
        return sum(1 for _ in self)


def _own(entry: CommandEntry, name: str) -> Any:
    """The function of a command of bricks, or the Typer app of a group of commands."""
    module = import_module(f"bricks.cli.{entry.module}")
    return getattr(module, "app", None) or getattr(module, name)


def _of_others(name: str) -> Any:
    """The function of a study of another package; raises :class:`KeyError` if there is none."""
    from bricks.studies.offer import offer

    found = offer(name)
    if found is None:
        raise KeyError(name)
    from bricks.cli.study import command_of

    return command_of(found)


def _typer_command(name: str, function: Any) -> Any:
    app = function
    if not isinstance(function, typer.Typer):
        app = typer.Typer(add_completion=False)
        app.command(name)(function)
    command = typer.main.get_command(app)
    command.name = name
    return command
