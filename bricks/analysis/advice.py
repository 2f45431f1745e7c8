"""Which candidates meet an SLO, in which setting and on how many hosts: plain data.

Must not know how settings are found, nor how advice is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from bricks.compose.estimate import Provenance, provenance_facts
from bricks.compose.slo import MeetsSlo
from bricks.studies.serving.hosts import HostRange, least
from bricks.units.facts import with_ends

if TYPE_CHECKING:
    from bricks.session.agreement import Agreement
    from bricks.system import Target
    from bricks.units.interval import Interval

# The order of candidates and settings by whether they meet the SLO.
_ORDER = {MeetsSlo.YES: 0, MeetsSlo.UNCERTAIN: 1, MeetsSlo.NO: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedSetting:
    """A model on a target with ``instances`` and a ``batch``, and whether it meets the SLO.

    ``batch`` is the size of a run, None for the model's own; of a server, its largest.
    ``latency_s`` is the percentile that the SLO bounds: on the fewest hosts that may do; without
    waiting, if no number of hosts does. ``hosts`` are None without a rate. ``spread_known`` says
    whether samples tell how single runs differ. ``cost_per_million`` requests is None without a
    price, or without a decided number of hosts.
    """

    FACTS: ClassVar = (
        "model", ("target.system.name", "system"), ("target.system.key", "system_key"),
        ("target.runtime.backend", "runtime"), ("target.runtime.version", "runtime_version"),
        ("target.runtime.threads", "threads"), "instances", "batch", "meets_slo",
        ("hosts.hosts", "hosts"), ("hosts.fewest", "hosts_low"), ("hosts.enough", "hosts_high"),
        with_ends("latency_s", "latency_s"), *provenance_facts("provenance"), "spread_known",
        "cost_per_million", "error",
    )  # fmt: skip

    model: str
    target: Target
    latency_s: Interval
    provenance: Provenance
    meets_slo: MeetsSlo
    instances: int = 1
    batch: int | None = None
    hosts: HostRange | None = None
    spread_known: bool = True
    cost_per_million: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSetting:
    """Why there is no advice for ``model`` on a target, in one line."""

    LIKE: ClassVar = AdvisedSetting

    model: str
    target: Target
    batch: int | None = None
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model in all its settings.

    ``failures`` are settings without an estimate, ``unread`` is why the model could not be read.
    ``max_qps`` is the highest rate at which a host in the best setting meets the SLO.
    """

    FACTS: ClassVar = (
        "model", "meets_slo", ("range.hosts", "hosts"), ("range.fewest", "hosts_low"),
        ("range.enough", "hosts_high"), with_ends("max_qps", "max_qps"), "best", "error",
    )  # fmt: skip

    model: str
    settings: tuple[AdvisedSetting, ...] = ()
    failures: tuple[NoSetting, ...] = ()
    unread: str | None = None
    max_qps: Interval | None = None

    @property
    def range(self) -> HostRange | None:
        """The hosts that the best setting takes; None without a rate, or without a setting."""
        ranges = [setting.hosts for setting in self.settings if setting.hosts is not None]
        return least(ranges) if ranges else None

    @property
    def meets_slo(self) -> MeetsSlo | None:
        """Whether any setting meets the SLO; None without a setting."""
        if (hosts := self.range) is not None:
            return hosts.meets_slo
        return min((of.meets_slo for of in self.settings), key=_ORDER.__getitem__, default=None)

    @property
    def undecided(self) -> bool:
        """Whether intervals leave open if the SLO is met, or on how many hosts."""
        return self.meets_slo is MeetsSlo.UNCERTAIN

    @property
    def best(self) -> AdvisedSetting | None:
        """The setting that meets the SLO, or may, on the fewest hosts; then the cheapest."""
        return min(self.settings, key=_worth, default=None)

    @property
    def error(self) -> str | None:
        """Why there is no advice; None where a setting has an estimate."""
        if self.settings:
            return None
        return self.unread or next((of.error for of in self.failures), "nothing is known of it")


def best_first(candidate: Candidate) -> tuple[Any, ...]:
    """The sort key: candidates that meet the SLO first, then those that may."""
    best = candidate.best
    if best is None or candidate.meets_slo is None:
        return len(_ORDER), candidate.model
    return _ORDER[candidate.meets_slo], *_worth(best), candidate.model


def _worth(of: AdvisedSetting) -> tuple[Any, ...]:
    """The sort key of settings: fewest hosts that may do, then the surest, cheapest and fastest."""
    hosts = of.hosts or HostRange(0, 0)
    cost = of.cost_per_million
    return (
        _ORDER[of.meets_slo] if of.hosts is None else 0,
        hosts.fewest is None, hosts.fewest or 0, hosts.enough is None, hosts.enough or 0,
        cost is None, cost or 0.0, of.latency_s.value, of.batch or 0, of.instances,
        of.target.system.name, of.target.runtime.threads,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """A ``command`` that decides whether ``models`` meet the SLO.

    It runs on the system called ``system``, None for this host. ``wall_s`` is about how many
    seconds it measures; None if that is not known.
    """

    models: tuple[str, ...]
    command: str
    system: str | None
    wall_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SloAdvice:
    """Candidates that meet ``slo_s`` seconds, or do not, the best first.

    The SLO bounds the ``percentile`` of latencies, None for the typical run; with ``qps``, those of
    a server at that rate. ``deciding`` are commands for the undecided candidates. ``agreements``
    say whether the runtime of the settings computes what others do.
    """

    FACTS: ClassVar = (
        "slo_s",
        "percentile",
        "qps",
        "candidates",
        "deciding",
        "settings",
        "agreements",
    )

    slo_s: float
    percentile: float | None
    qps: float | None
    candidates: tuple[Candidate, ...]
    deciding: tuple[Deciding, ...] = ()
    agreements: tuple[Agreement, ...] = ()

    @property
    def runtime(self) -> str:
        """The runtime of all settings; empty without any."""
        return next((of.target.runtime.backend for of in self.settings), "")

    @property
    def settings(self) -> Sequence[AdvisedSetting | NoSetting]:
        """All settings of all candidates."""
        every: list[AdvisedSetting | NoSetting] = []
        for candidate in self.candidates:
            settings = sorted(candidate.settings, key=_worth)
            every += settings
            every += candidate.failures
        return every

    @property
    def errors(self) -> tuple[str, ...]:
        """Why candidates have no advice, a line each."""
        errors = (candidate.error for candidate in self.candidates)
        return tuple(error for error in errors if error is not None)
