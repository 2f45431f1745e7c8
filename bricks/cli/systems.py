"""``bricks systems``: this host, the systems in the cache, and published ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from bricks.cli.command import command
from bricks.cli.options import CacheOptions, DetailOptions
from bricks.cli.output import print_json, show, show_answer
from bricks.cli.workspaces import existing_store, known_measurements, note_published
from bricks.errors import UsageError
from bricks.session.targets import as_there, runtime_facts, systems_called, unmeasured_targets
from bricks.studies.options import argument, option

if TYPE_CHECKING:
    from bricks.session.workspace import Workspace
    from bricks.system import System, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSystems:
    """Two systems by name or key; without the second, this host."""

    one: str = argument("A known system.", metavar="NAME", values="systems")
    other: str | None = argument(
        "Another one; else this host.", default=None, metavar="[OTHER]", values="systems"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemDescription:
    """A system by name or key, its new name, and the price of an hour in any currency."""

    system: str = argument("A known system.", metavar="NAME", values="systems")
    name: str | None = option("What to call it from now on.", default=None, metavar="NEW")
    price: float | None = option(
        "What an hour of it costs, in your currency.", default=None, least=0, metavar="PRICE"
    )

    def __post_init__(self) -> None:
        """Raise :class:`UsageError` for a name or price that cannot be, or neither of them."""
        name, price = self.name, self.price
        if name is None and price is None:
            raise UsageError("nothing is to be set: give --name, --price or both")
        if name is not None and (not name.strip() or not name.isprintable()):
            raise UsageError(f"{name!r} is no name: give one of printable characters")
        if price is not None and not math.isfinite(price):
            raise UsageError(f"the price {price} cannot be paid: give a number")


app = typer.Typer(add_completion=False, invoke_without_command=True)


@app.callback()
@command
def systems(context: typer.Context, output: CacheOptions, detail: DetailOptions) -> None:
    """List the systems in the cache and the published ones, and say which one this host is.

    With --all, also the facts of this host and the targets of each system.
    Example: bricks systems --json
    """
    if context.invoked_subcommand is not None:
        return
    from bricks.report.systems import systems_text
    from bricks.store import Published, Store, Union
    from bricks.system import fingerprint

    here, published = fingerprint(), Published()
    published.check()  # an error for a damaged file, before somebody relies on it
    with ExitStack() as opened:
        own = []
        if Store.exists(output.cache):  # asking about a missing cache must not create it
            own = [opened.enter_context(Store.open(output.cache))]
            here = own[0].systems.named(here)
        known = Union(*own, published).systems
        there = {target.key for target in published.systems.targets()}
        runtimes = runtime_facts(known.targets(), there)
        rows = [
            {
                **system.to_json(),
                "this_host": system.key == here.key,
                "published": any(of["published"] for of in runtimes.get(system.key, ())),
                "runtimes": runtimes.get(system.key, []),
            }
            for system in known.all()
        ]
    note_published(published)
    answer = systems_text(here.name, rows)
    if output.json:
        print_json({"answer": answer, "this_host": here.to_json(), "systems": rows})
    else:
        from bricks.report.systems import systems_details, systems_parts

        parts = systems_parts(rows)
        if detail.every:
            names = {system.key: system.name for system in published.systems.all()}
            parts += [*([""] if parts else []), *systems_details(here.identity, rows, names)]
        show_answer(answer, *parts, every=detail.every)


@app.command()
@command
def diff(asked: ComparedSystems, output: CacheOptions) -> None:
    """Tell the facts that differ between two systems.

    Those of the identity make them two; the others may explain a difference.
    Example: bricks systems diff amd-epyc-zen4-2c amd-epyc-zen5-2c
    """
    from bricks.system import fingerprint

    with known_measurements(output.cache) as source:
        every = source.systems.all()
    first = _called(every, asked.one)
    second = fingerprint() if asked.other is None else _called(every, asked.other)
    differences = first.differences(second)
    if output.json:
        print_json({"one": first.to_json(), "other": second.to_json(), "differences": differences})
        return
    from bricks.report.tables import differences_table

    names = [first.name, second.name]
    if first.name == second.name:
        names = [first.key, second.key if asked.other else "this host"]
    if first.key == second.key:
        show(f"{names[0]} and {names[1]} are one system: measurements of both count for it.")
    else:
        show(
            f"{names[0]} and {names[1]} are two systems. What makes them two:",
            differences_table(names, differences["identity"]),
        )
    if differences["recorded"]:
        show("", "What is recorded besides:", differences_table(names, differences["recorded"]))


@app.command("set")
@command
def set_(asked: SystemDescription, output: CacheOptions) -> None:
    """Give a system a name, and the price of an hour. Both stay, whatever is measured on it.

    Example: bricks systems set intel-xeon-6-167-2c --name c7i.large --price 0.089
    """
    with existing_store(output.cache) as store:
        key = _called(store.systems.all(), asked.system).key
        store.systems.describe(key, name=asked.name, price_per_hour=asked.price)
        now = _called(store.systems.all(), key)
    if output.json:
        print_json(now.to_json())
    else:
        costs = "" if now.price_per_hour is None else f", {now.price_per_hour:g} an hour"
        show(f"{key} is called {now.name}{costs}.")


def _called(known: list[System], name: str) -> System:
    """The system with this name or key; :class:`UsageError` if there is none or several."""
    matches = systems_called(known, name)
    if len(matches) > 1:
        keys = ", ".join(system.key for system in matches)
        raise UsageError(f"several systems are called {name!r}: give one of their keys, {keys}")
    return matches[0]


def known_targets(workspace: Workspace, names: Sequence[str]) -> Iterator[Target]:
    """Targets on the systems ``names``, measured like the workspace with any number of threads.

    All such targets without names. A card that nobody measured has the targets of others.
    """
    from bricks.analysis.answers import targets_like

    targets = targets_like(workspace)
    if names and targets:
        targets = [target for name in names for target in _on(workspace, name, targets)]
    if not targets:
        raise UsageError(
            f"nothing in the cache {workspace.store.path} was measured with"
            f" {workspace.runtime.backend} like that:"
            " 'bricks measure' or 'bricks cache import' first"
        )
    yield from targets


def _on(workspace: Workspace, name: str, like: Sequence[Target]) -> Sequence[Target]:
    """The targets among ``like`` on the system ``name``; :class:`UsageError` if there is none."""
    known, runtime = workspace.known.systems.targets(), workspace.runtime
    systems = systems_called((target.system for target in known), name)
    keys = {system.key for system in systems}
    predicted = (
        unmeasured_targets(systems, known)
        if keys.isdisjoint({target.system.key for target in known})
        else ()
    )
    there = [target for target in like if target.system.key in keys]
    there += [target for target in predicted if target.runtime == as_there(runtime, target)]
    if not there:
        raise UsageError(
            f"system {name!r} was not measured with {runtime.backend} like that: leave it out"
        )
    return there
