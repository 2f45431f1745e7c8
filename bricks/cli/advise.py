"""``bricks advise``: which of the known systems keeps a latency, and what that costs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bricks.cli.command import command, typed_options
from bricks.cli.latency_advice import LatencyAdviceOptions, advise_latencies
from bricks.cli.options import SurveyOptions
from bricks.cli.runtime_advice import RuntimeAdviceOptions, advise_runtimes
from bricks.cli.serving_advice import ServerAdviceOptions, advise_server
from bricks.errors import UsageError
from bricks.studies.options import systems_option


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedSystems:
    """The systems that advice is about, by name or key; None: all that are known."""

    names: Sequence[str] | None = systems_option("Only these systems.", "SYSTEM,…|all")


@command
def advise(
    options: SurveyOptions,
    latency: LatencyAdviceOptions,
    choice: RuntimeAdviceOptions,
    systems: AdvisedSystems,
    server: ServerAdviceOptions,
) -> None:
    """Tell on which known systems models keep a latency, how sure that is, and what it costs.

    Of models named, on all systems of the cache and all published ones; without any, of the whole
    zoo. Nothing is timed; bricks that a system has not measured are predicted. Prices are those of
    'bricks systems set'. With --scenario server: instances, batches and hosts that keep the latency
    at a rate. With --runtimes: the fastest runtime for each model, on this host or --on; one
    that is not installed counts where it was measured. Example: bricks advise resnet50 --slo 20ms
    """
    names = () if systems.names in (None, ("all",)) else systems.names
    if choice.runtimes is not None:
        if needless := [*_flags(latency), *_flags(server)]:
            raise UsageError(
                f"--runtimes compares latencies alone: leave out {' and '.join(needless)}"
            )
        advise_runtimes(options, names, choice.runtimes)
    elif latency.slo_s is None:
        raise UsageError("a latency is to be kept: add --slo 20ms")
    elif server.scenario is not None:
        if latency.batches is not None or options.models.batch is not None:
            raise UsageError("a server makes batches itself: give --batching N in place of --batch")
        advise_server(options, names, latency.slo_s, server)
    else:
        for flag in _flags(server):
            raise UsageError(f"{flag} is for a server: add --scenario server")
        advise_latencies(options, names, latency.slo_s, latency.batches)


def _flags(options: LatencyAdviceOptions | ServerAdviceOptions) -> Collection[str]:
    """The flags of the options that were given."""
    return [f"--{option.name}" for option in typed_options(options) if option.value is not None]
