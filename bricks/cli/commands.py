"""All commands by name, with the first sentence of the help of each.

A command is imported from the module of its name when it is called, or when its help is shown; the
list of all commands needs only this module. A test compares the sentences with the commands' own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from importlib import import_module
from typing import Any

import typer

# By the titles of the sections that list all commands.
SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Prepare": {
        "zoo": "The models that ship with bricks, and their recipes.",
        "backends": "The runtimes that models can be measured with, and their install.",
        "systems": "List the systems in the cache and the published ones, and say which one"
        " this host is.",
        "decompose": "Split models into bricks, and count how many of them are unique.",
    },
    "Measure": {
        "measure": "Measure the bricks of models, each once per system and runtime.",
        "probe": "Measure the few bricks that tell most of this system, and predict all"
        " others from them.",
        "interconnect": "Networks between the processes of a data-parallel training.",
    },
    "Ask": {
        "predict": "Predict how fast models run, from measurements of their bricks.",
        "compare": "Compare estimates with runs of the whole models, sampled in turn with"
        " their bricks.",
        "advise": "Tell which models meet an SLO, on which known systems, with which threads and"
        " batches.",
        "scenario": "Predict a served model's latency under load, its throughput, and the"
        " rate it can keep.",
        "llm": "Predict text that a decoder makes token by token: first token, tokens a second,"
        " memory.",
        "scale": "Predict a PyTorch training on several ranks, from the bricks of its step"
        " and a network.",
        "train": "Predict how long a PyTorch program takes to train: a step, an epoch, and a run.",
        "validate": "Compare what runtimes compute with double precision, and with each other.",
        "explain": "Tell where the time of models goes, and what replacing their costliest"
        " operators would gain.",
        "diff": "Tell which models and bricks are slower or faster in a version of a runtime than"
        " in another.",
    },
    "Share": {
        "generate": "Write the suite of models: all that measuring them elsewhere needs,"
        " without weights.",
        "cache": "Look into the cache of measurements, and check it.",
        "report": "Write one HTML page: which models are slow, which are uncertain, where time"
        " goes.",
        "web": "Serve pages that tell what a model takes on every known system, until interrupted.",
        "worker": "Measure on this host what 'bricks measure --scheduler' asks for, until"
        " interrupted.",
    },
}
NAMES = frozenset(name for summaries in SECTIONS.values() for name in summaries)

# Former names that still work, unlisted: the words of the command now.
FORMER: Mapping[str, tuple[str, ...]] = {
    "network": ("interconnect",),
    "operators": ("validate", "operators"),
    "networks": ("validate", "models"),
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
        if name in FORMER:
            return self._now(*FORMER[name])
        if name not in self._built:
            function = _own(name) if name in NAMES else _of_others(name)
            app = function
            if not isinstance(function, typer.Typer):
                app = typer.Typer(add_completion=False)
                app.command(name)(function)
            command = typer.main.get_command(app)
            command.name = name
            convert_sparingly(command)
            self._built[name] = self._prepare(command)
        return self._built[name]

    def _now(self, name: str, *below: str) -> Any:
        command = self[name]
        for word in below:
            command = command.commands[word]
        return command

    def __iter__(self) -> Iterator[str]:
        """Names of the commands of bricks, then of others' studies."""
        from bricks.studies.study import names

        yield from (name for summaries in SECTIONS.values() for name in summaries)
        yield from (name for name in names() if name not in NAMES)

    def __len__(self) -> int:
        """The number of commands."""
        return sum(1 for _ in self)


def _own(name: str) -> Any:
    """The function of a command of bricks, or the Typer app of a group of commands."""
    module = import_module(f"bricks.cli.{name}")
    return getattr(module, "app", None) or getattr(module, name)


def _of_others(name: str) -> Any:
    """The function of a study of another package; raises :class:`KeyError` if there is none."""
    from bricks.studies.study import offer

    study = offer(name)
    if study is None:
        raise KeyError(name)
    from bricks.cli.study import command_of

    return command_of(study)


def convert_sparingly(command: Any) -> None:
    """Let texts and defaults of a command's parameters pass unconverted.

    Typer converts values by a library that takes as long to import as half of an answer; only
    numbers and paths that a user typed need it.
    """
    for parameter in command.params:
        parameter.get_runtime_param = partial(_Sparing, parameter, parameter.get_runtime_param)
    made = command.get_help_option  # --help is no parameter before it is asked for

    @wraps(made)
    def help_option(context: Any) -> Any:
        option = made(context)
        if option is not None:
            option.get_runtime_param = partial(_Sparing, option, type(option).get_runtime_param)
        return option

    command.get_help_option = help_option
    for below in getattr(command, "commands", {}).values():
        convert_sparingly(below)


@dataclass(frozen=True, slots=True)
class _Sparing:
    """What converts the values of a ``parameter``: itself, or else Typer's converter."""

    parameter: Any
    typers: Callable[[], Any]

    def coerce(self, value: Any, **where: Any) -> Any:
        kind, default = self.parameter.type_descriptor.annotation, self.parameter.default
        several = self.parameter.multiple or self.parameter.nargs == -1
        if value is None:
            return () if several else None
        if several and kind == list[str] and not isinstance(value, str):
            return list(value)
        if not several and (kind is str or (value is default and not isinstance(value, str))):
            return value
        return self.typers().coerce(value, **where)
