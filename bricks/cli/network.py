"""``bricks network``: measure networks between ranks of a training, and look at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bricks.cli import completion
from bricks.cli.choices import COLLECTIVES
from bricks.cli.options import Cache, Json
from bricks.cli.output import print_json, remark, show
from bricks.cli.progress import terminal_progress
from bricks.errors import StoreError, UsageError
from bricks.session.defaults import CACHE
from bricks.units.quantities import bytes_per_s_of

if TYPE_CHECKING:
    from bricks.measure.progress import Progress
    from bricks.network.times import MeasuredNetwork
    from bricks.session.networks import NetworkMeasured, WantedNetwork
    from bricks.store import Store

Name = Annotated[str, typer.Argument(metavar="NAME", help="What to call the network.")]
Ranks = Annotated[int, typer.Option(metavar="N", min=2, help="Processes that communicate.")]
Bandwidth = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="Between network namespaces of this host, each sending at 1Gbit, say; or unlimited."
        " Needs root.",
        show_default="loopback",
    ),
]
Loopback = Annotated[bool, typer.Option("--loopback", help="On this host's loopback interface.")]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Between hosts that have joined this Dask scheduler ('bricks worker').",
        show_default=False,
    ),
]
Computing = Annotated[
    bool,
    typer.Option(
        "--computing",
        help="Measure while the ranks compute, too, and how much slower they do.",
    ),
]
Operations = Annotated[
    list[str] | None,
    typer.Option(
        "--operation",
        metavar="NAME",
        autocompletion=completion.values(COLLECTIVES),
        help="Only this collective; may be repeated.",
        show_default="all",
    ),
]
Again = Annotated[
    bool, typer.Option("--again", help="Measure further rounds of what is measured already.")
]
MaxBytes = Annotated[int, typer.Option(metavar="N", min=1024, help="The largest tensor, in bytes.")]
BackendName = Annotated[
    str, typer.Option(metavar="NAME", help="What communicates: gloo, or nccl between GPUs.")
]

app = typer.Typer(
    no_args_is_help=True, help="Networks between the processes of a data-parallel training."
)


@app.command()
def measure(
    name: Name,
    ranks: Ranks = 2,
    bandwidth: Bandwidth = None,
    loopback: Loopback = False,
    scheduler: Scheduler = None,
    computing: Computing = False,
    operation: Operations = None,
    max_bytes: MaxBytes = 256 << 20,
    backend: BackendName = "gloo",
    again: Again = False,
    json: Json = False,
    cache: Cache = CACHE,
) -> None:
    """Measure collectives on a network, into the cache: from 1 KiB on, in steps of four.

    Measured are processes that really communicate, a core for each. Sizes that would take over ten
    seconds are left out. Example: bricks network measure lan --bandwidth 1Gbit --computing
    """
    from bricks.session.networks import WantedNetwork
    from bricks.store import Store

    if sum((bandwidth is not None, loopback, scheduler is not None)) > 1:
        raise UsageError("a network is one: give --bandwidth, --loopback or --scheduler")
    wanted = WantedNetwork(
        name, ranks, backend, _operations(operation), _sizes(max_bytes), computing, again
    )
    with Store.open(cache) as store, terminal_progress() as progress:
        if scheduler is not None:
            done = _on_hosts(store, wanted, scheduler, progress)
        else:
            done = _locally(store, wanted, bandwidth, progress)
        found = _called(store, name)
    facts = {**_facts(found), **_done(done)}
    _remark_left_out(done)
    if json:
        print_json(facts)
        return
    show(f"{name}: {_counted(done)}.")
    _show_network(facts)


def _remark_left_out(done: NetworkMeasured) -> None:
    from bricks.network.collective import Collective

    for key in done.done.left_out:
        of = Collective.of(key)
        remark(f"{key if of is None else of.title} would take too long, and was left out")


def _counted(done: NetworkMeasured) -> str:
    """What became of all series, in words; and what to do where none was measured."""
    new, known, again = len(done.done.new), len(done.done.known), len(done.done.again)
    if again:
        return f"{new} series are new, {again} have further rounds"
    if not new and known:
        return f"all {known} series were known: --again measures further rounds of them"
    return f"{new} series are new, {known} were known"


@app.command("list")
def list_networks(json: Json = False, cache: Cache = CACHE) -> None:
    """List the networks that the cache knows.

    Example: bricks network list --json
    """
    from bricks.session.known_networks import measured_networks
    from bricks.store import Store

    rows: list[dict[str, Any]] = []
    if Store.exists(cache):
        with Store.open(cache) as store:
            rows = [_row(network) for network in measured_networks(store)]
    if json:
        print_json({"networks": rows})
    elif not rows:
        show("The cache knows no network yet: 'bricks network measure NAME' makes one known.")
    else:
        from bricks.report.network import networks_table

        show(networks_table(rows))


@app.command("show")
def show_network(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A known network, or its key.")],
    json: Json = False,
    cache: Cache = CACHE,
) -> None:
    """Show what was measured on a network, the fit to it, and how far it is from what was measured.

    Example: bricks network show lan
    """
    from bricks.store import Store

    if not Store.exists(cache):
        raise StoreError(f"there is no cache in {cache}: give another --cache")
    with Store.open(cache, make=False) as store:
        facts = _facts(_called(store, name))
    if json:
        print_json(facts)
    else:
        _show_network(facts)


def _operations(names: list[str] | None) -> tuple[str, ...]:
    from bricks.network.collective import OPERATIONS, operation_of

    return tuple(map(operation_of, names or OPERATIONS))


def _sizes(max_bytes: int) -> tuple[int, ...]:
    from bricks.session.networks import SIZES

    return tuple(size for size in SIZES if size <= max_bytes)


def _locally(
    store: Store, wanted: WantedNetwork, bandwidth: str | None, progress: Progress
) -> NetworkMeasured:
    from bricks.session.local_networks import measure_locally

    rate = None
    if bandwidth is not None and bandwidth != "unlimited":
        rate = 8 * bytes_per_s_of("--bandwidth", bandwidth)
    return measure_locally(
        store, wanted, shaped=bandwidth is not None, bandwidth_bps=rate, progress=progress
    )


def _on_hosts(
    store: Store, wanted: WantedNetwork, scheduler: str, progress: Progress
) -> NetworkMeasured:
    from bricks.fleet.cluster import connected
    from bricks.fleet.networks import measure_between_hosts

    with connected(scheduler) as cluster:
        return measure_between_hosts(cluster, store, wanted, progress)


def _called(store: Store, name: str) -> MeasuredNetwork:
    from bricks.session.known_networks import network_called

    return network_called(store, name)


def _row(network: MeasuredNetwork) -> dict[str, Any]:
    from bricks.network.collective import Collective

    found = [of for key in network.samples if (of := Collective.of(key)) is not None]
    return {
        **network.fingerprint,
        "ranks": sorted({of.ranks for of in found}),
        "operations": sorted({of.operation for of in found}),
        "series": len(found),
    }


def _facts(network: MeasuredNetwork) -> dict[str, Any]:
    from bricks.session.network_facts import fits, slowdowns

    return {**_row(network), "fits": fits(network), "slowdowns": slowdowns(network)}


def _done(done: NetworkMeasured) -> dict[str, Any]:
    return {
        "new": list(done.done.new),
        "known": list(done.done.known),
        "left_out": list(done.done.left_out),
        "again": list(done.done.again),
    }


def _show_network(facts: dict[str, Any]) -> None:
    from bricks.report.network import network_parts

    show(*network_parts(facts))
