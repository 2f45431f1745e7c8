"""``bricks interconnect``: measure networks between the ranks of a training, list and show them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from bricks.cli.command import command
from bricks.cli.options import COLLECTIVES, CacheOptions
from bricks.cli.output import note, print_json, show, terminal_progress
from bricks.cli.workspaces import existing_store
from bricks.errors import UsageError
from bricks.studies.options import argument, option
from bricks.units.quantities import bytes_per_s_of

if TYPE_CHECKING:
    from bricks.network.times import MeasuredNetwork
    from bricks.session.networks import NetworkMeasured
    from bricks.store import Store

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Networks between the processes of a data-parallel training.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """The link between the ranks: shaped, loopback or between hosts; by default loopback."""

    bandwidth: str | None = option(
        "Between network namespaces of this host, each sending at 1Gbit, say; or unlimited."
        " Needs root.",
        default=None, metavar="RATE", shown="loopback",
    )  # fmt: skip
    loopback: bool = option("On this host's loopback interface.", default=False)
    scheduler: str | None = option(
        "Between hosts that have joined this Dask scheduler ('bricks worker').",
        default=None, metavar="ADDRESS", shown=False,
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Raise :class:`UsageError` for more than one link."""
        if sum((self.bandwidth is not None, self.loopback, self.scheduler is not None)) > 1:
            raise UsageError("a network is one: give --bandwidth, --loopback or --scheduler")


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveOptions:
    """The collectives that are measured, their ranks and the bytes of their tensors."""

    ranks: int = option("Processes that communicate.", default=2, least=2, metavar="N")
    link: LinkOptions = field(default_factory=LinkOptions)
    computing: bool = option(
        "Measure while the ranks compute, too, and how much slower they do.", default=False
    )
    operations: list[str] | None = option(
        "Only this collective; may be repeated.",
        default=None, flag="--operation", metavar="NAME", values=COLLECTIVES, shown="all",
    )  # fmt: skip
    max_bytes: int = option(
        "The largest tensor, in bytes.", default=256 << 20, least=1024, metavar="N"
    )
    backend: str = option(
        "What communicates: gloo, or nccl between GPUs.", default="gloo", metavar="NAME"
    )
    again: bool = option("Measure further rounds of what is measured already.", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNetwork:
    """The name of a network that is measured."""

    name: str = argument("What to call the network.", metavar="NAME")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNetwork:
    """The name of a network that was measured."""

    name: str = argument("A known network, or its key.", metavar="NAME")


@app.command()
@command
def measure(network: NewNetwork, asked: CollectiveOptions, output: CacheOptions) -> None:
    """Measure collectives on a network, into the cache: from 1 KiB on, in steps of four.

    Measured are processes that really communicate, a core for each. Sizes that would take over ten
    seconds are left out. Example: bricks interconnect measure lan --bandwidth 1Gbit --computing
    """
    from bricks.network.collective import OPERATIONS, Collective, operation_of
    from bricks.session.networks import SIZES, NetworkRequest, measure_locally
    from bricks.store import Store

    operations = tuple(map(operation_of, asked.operations or OPERATIONS))
    request = NetworkRequest(
        network.name, asked.ranks, asked.backend, operations,
        tuple(size for size in SIZES if size <= asked.max_bytes), asked.computing, asked.again,
    )  # fmt: skip
    with Store.open(output.cache) as store, terminal_progress() as progress:
        if asked.link.scheduler is not None:
            from bricks.fleet.cluster import connected
            from bricks.fleet.ranks import measure_between_hosts

            with connected(asked.link.scheduler) as cluster:
                done = measure_between_hosts(cluster, store, request, progress)
        else:
            bandwidth, rate = asked.link.bandwidth, None
            if bandwidth is not None and bandwidth != "unlimited":
                rate = 8 * bytes_per_s_of("--bandwidth", bandwidth)
            shaped = bandwidth is not None
            done = measure_locally(
                store, request, shaped=shaped, bandwidth_bps=rate, progress=progress
            )
        measured = _called(store, network.name)
    facts = {**_facts(measured), **_done(done)}
    for key in done.done.left_out:
        of = Collective.of(key)
        note(f"{key if of is None else of.title} would take too long, and was left out")
    if output.json:
        print_json(facts)
        return
    show(f"{network.name}: {_counted(done)}.")
    _show_network(facts)


def _counted(done: NetworkMeasured) -> str:
    new, known, again = len(done.done.new), len(done.done.known), len(done.done.again)
    if again:
        return f"{new} series are new, {again} have further rounds"
    if not new and known:
        return f"all {known} series were known: --again measures further rounds of them"
    return f"{new} series are new, {known} were known"


@app.command("list")
@command
def list_networks(output: CacheOptions) -> None:
    """List the networks that the cache knows.

    Example: bricks interconnect list --json
    """
    from bricks.session.networks import measured_networks
    from bricks.store import Store

    rows: list[dict[str, Any]] = []
    if Store.exists(output.cache):
        with Store.open(output.cache) as store:
            rows = [_row(network) for network in measured_networks(store)]
    if output.json:
        print_json({"networks": rows})
    elif not rows:
        show("The cache knows no network yet: 'bricks interconnect measure NAME' makes one known.")
    else:
        from bricks.report.systems import networks_table

        show(networks_table(rows))


@app.command("show")
@command
def show_network(network: KnownNetwork, output: CacheOptions) -> None:
    """Show what was measured on a network, the fit to it, and how far it is from what was measured.

    Example: bricks interconnect show lan
    """
    with existing_store(output.cache) as store:
        facts = _facts(_called(store, network.name))
    if output.json:
        print_json(facts)
    else:
        _show_network(facts)


def _called(store: Store, name: str) -> MeasuredNetwork:
    from bricks.session.networks import network_called

    return network_called(store, name)


def _row(network: MeasuredNetwork) -> dict[str, Any]:
    from bricks.network.collective import Collective

    collectives = [of for key in network.samples if (of := Collective.of(key)) is not None]
    return {
        **network.fingerprint,
        "ranks": sorted({of.ranks for of in collectives}),
        "operations": sorted({of.operation for of in collectives}),
        "series": len(collectives),
    }


def _facts(network: MeasuredNetwork) -> dict[str, Any]:
    from bricks.session.networks import fits, slowdowns

    return {**_row(network), "fits": fits(network), "slowdowns": slowdowns(network)}


def _done(done: NetworkMeasured) -> dict[str, Any]:
    return {
        "new": list(done.done.new),
        "known": list(done.done.known),
        "left_out": list(done.done.left_out),
        "again": list(done.done.again),
    }


def _show_network(facts: dict[str, Any]) -> None:
    from bricks.report.systems import network_parts

    show(*network_parts(facts))
