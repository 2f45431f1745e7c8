"""Deals out the bricks of some models among hosts, and gathers what they measure in a store.

Every distinct target measures each brick once; hosts that are alike share the work, portion by
portion. A host that dies, hangs or changes loses its portion to others; one that joins late gets
what is left. Must not know how hosts are reached (:class:`Cluster`) or how bricks are measured.
"""

from __future__ import annotations

import math
import tempfile
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from bricks._version import __version__
from bricks.decompose.granularity import Granularity
from bricks.decompose.identity import mismatch
from bricks.decompose.plan import Decomposition
from bricks.errors import FleetError, StoreError, first_line
from bricks.fleet import host as there
from bricks.fleet.host import BatchResult, ModelPayload, Ready
from bricks.fleet.report import FleetMeasured, HostReport, TargetReport
from bricks.graph.model import Model
from bricks.measure.campaign import Progress
from bricks.measure.jobs import Job, batches, needs_of, spread_out
from bricks.samples.measurement import Failure
from bricks.session.options import Options, effort_of
from bricks.store import Store
from bricks.system import Target

# Bricks of a portion: so many that loading and sampling them takes seconds, and few enough that
# hosts which are alike end together. One model's bricks are not parted.
_FEWEST, _MAX, _PARTS = 10, 100, 8

# How often a portion is tried: what takes down one host after the other is to blame itself.
_TRIES = 3

_LOOK_S = 0.1

# Keys of bricks; None: all, as the options say.
KeyBatch = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Seen:
    """A host as the scheduler sees it; ``sign`` changes whenever it gives a sign of life."""

    name: str
    sign: float


class Call(Protocol):
    """Something that a host was asked to do."""

    def done(self) -> bool:
        """Whether it has ended, in whichever way."""

    def result(self) -> Any:
        """What it returned; raises what was raised there."""

    def abandon(self) -> None:
        """Have nothing to do with it any more."""


class Cluster(Protocol):
    """Hosts that can be asked to do something."""

    def hosts(self) -> Mapping[str, Seen]:
        """All that are there now, by address."""

    def call(self, address: str, function: Callable[..., Any], *arguments: Any) -> Call:
        """Have a function called on a host."""

    def tell(self, address: str, function: Callable[..., Any], *arguments: Any) -> None:
        """The same, whenever the host comes to it; nobody asks what it returned."""


class _Phase(Enum):
    GREETING, PREPARING, IDLE, MEASURING = range(4)


@dataclass
class _Host:
    address: str
    name: str
    sign: float
    signed_s: float
    phase: _Phase = _Phase.GREETING
    call: Call | None = None
    target: Target | None = None
    share: KeyBatch = None
    left: str | None = None
    new_bricks: int = 0
    portions: int = 0
    foreign_cores: float | None = None
    rounds: int = 0
    disturbed_rounds: int = 0
    changed: dict[str, str] = field(default_factory=dict)

    def report(self) -> HostReport:
        return HostReport(
            name=self.name,
            address=self.address,
            system=None if self.target is None else self.target.system.key,
            left=self.left,
            new_bricks=self.new_bricks,
            portions=self.portions,
            foreign_cores=self.foreign_cores,
            rounds=self.rounds,
            disturbed_rounds=self.disturbed_rounds,
            changed=tuple(self.changed.values()),
        )


@dataclass
class _Work:
    """What a target has to measure: the portions that nobody has yet."""

    target: Target
    keys: frozenset[str]
    errors: Mapping[str, str]
    queue: deque[KeyBatch]
    out: int = 0
    new_bricks: int = 0
    tries: Counter[KeyBatch] = field(default_factory=Counter)
    given_up: list[str] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return not self.queue and not self.out


class Fleet:
    """One request to measure ``models`` on all hosts of ``cluster``, into ``store``.

    A host that gives no sign of life for ``patience_s`` seconds counts as gone; so long, too, it is
    waited for hosts where none is left that could go on. ``note`` is told, in one line each, who
    joins and who leaves.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        models: Sequence[Model],
        options: Options,
        *,
        patience_s: float = 60.0,
        progress: Progress = lambda what, share: None,
        note: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._models = list({model.digest: model for model in models}.values())
        self._parcels = [ModelPayload.of(model) for model in self._models]
        self._options = options
        self._patience_s = patience_s
        self._progress = progress
        self._note = note
        self._request = uuid.uuid4().hex
        self._hosts: dict[str, _Host] = {}
        self._gone: list[_Host] = []
        self._ignored: dict[str, float | None] = {}  # the last sign of who was lost; None: for good
        self._works: dict[str, _Work] = {}
        self._parted = effort_of(options).complete and options.conditions.budget_s is None

    def run(self) -> FleetMeasured:
        """Measure until every target that was met has measured all, or nobody is left to do so."""
        started = time.perf_counter()
        active_s = time.monotonic()
        try:
            while True:
                self._look()
                for host in list(self._hosts.values()):
                    self._tend(host)
                self._show()
                if self._works and all(work.over for work in self._works.values()):
                    if not self._busy():
                        break
                if self._busy():
                    active_s = time.monotonic()
                elif time.monotonic() - active_s > self._patience_s:
                    self._refuse_idleness()
                    break
                time.sleep(_LOOK_S)
        finally:
            for host in self._hosts.values():
                if host.call is not None:
                    host.call.abandon()
                self._cluster.tell(host.address, there.finish, self._request)
        hosts = [*self._gone, *self._hosts.values()]
        return FleetMeasured(
            tuple(self._reported(work) for work in self._works.values()),
            tuple(host.report() for host in hosts),
            time.perf_counter() - started,
        )

    def _busy(self) -> bool:
        """Whether somebody is at work, or there is somebody for the work that is left."""
        for host in self._hosts.values():
            if host.call is not None:
                return True
            if host.phase is _Phase.IDLE and host.target is not None:
                if self._works[host.target.key].queue:
                    return True
        return False

    def _refuse_idleness(self) -> None:
        """FleetError if nothing was or could be done at all."""
        if self._works:
            return
        refused = [f"{host.name}: {host.left}" for host in self._gone]
        raise FleetError(
            f"no host can measure: {'; '.join(refused)}"
            if refused
            else "no host has joined: start 'bricks worker' with the scheduler's address on each"
        )

    # Hosts

    def _look(self) -> None:
        """See who is there."""
        seen, now = self._cluster.hosts(), time.monotonic()
        for address, host in list(self._hosts.items()):
            if address not in seen:
                self._lose(host, "has left, or its process has ended")
            elif seen[address].sign != host.sign:
                host.sign, host.signed_s = seen[address].sign, now
            elif now - host.signed_s > self._patience_s:
                self._lose(host, f"has given no sign of life for {self._patience_s:.0f} s")
        for address, found in seen.items():
            if address not in self._hosts and self._ignored.get(address, 0.0) not in (
                found.sign,
                None,
            ):
                host = self._hosts[address] = _Host(address, found.name, found.sign, now)
                host.call = self._cluster.call(address, there.greet)

    def _lose(self, host: _Host, why: str, *, refused: bool = False) -> None:
        """Do without a host from now on; its portion goes to another.

        Who is ``refused`` stays so; who was silent may join anew when it is heard of again.
        """
        if host.call is not None:
            host.call.abandon()
            host.call = None
        if host.phase is _Phase.MEASURING:
            self._put_back(host, f"{host.name} {why}")
        self._ignored[host.address] = None if refused else host.sign
        if refused:
            self._cluster.tell(host.address, there.finish, self._request)
        host.left = why
        self._gone.append(self._hosts.pop(host.address))
        self._note(f"{host.name} {why}")

    def _tend(self, host: _Host) -> None:
        """Take what a host has done, and give it what comes next."""
        if host.call is not None:
            if not host.call.done():
                return
            call, host.call = host.call, None
            try:
                result = call.result()
            except Exception as exc:  # of any kind: it comes from another host
                self._failed(host, exc)
            else:
                self._took(host, result)
        if host.phase is _Phase.IDLE and host.target is not None:
            work = self._works[host.target.key]
            if work.queue:
                host.share, host.phase = work.queue.popleft(), _Phase.MEASURING
                work.out += 1
                host.call = self._cluster.call(
                    host.address, there.measure, self._request, host.share
                )

    def _failed(self, host: _Host, exc: Exception) -> None:
        line = first_line(exc)
        if isinstance(exc, FleetError) and host.phase is _Phase.MEASURING:
            self._put_back(host, line, blame=False)
            self._prepare(host)
        elif host.phase is _Phase.MEASURING:
            self._put_back(host, f"{host.name}: {line}")
            host.phase = _Phase.IDLE
        else:
            self._lose(host, f"cannot measure: {line}", refused=True)

    def _took(self, host: _Host, result: Any) -> None:
        if host.phase is _Phase.GREETING:
            version = result["package"]
            if version != __version__:
                said = f"runs bricks {version}, and not {__version__}: update one"
                self._lose(host, said, refused=True)
                return
            self._prepare(host)
        elif host.phase is _Phase.PREPARING:
            self._prepared(host, result)
        else:
            self._measured(host, result)

    def _prepare(self, host: _Host) -> None:
        host.phase = _Phase.PREPARING
        host.call = self._cluster.call(
            host.address, there.prepare, self._request, self._options, self._parcels
        )

    def _prepared(self, host: _Host, ready: Ready) -> None:
        try:
            self._merge(ready.results)
        except StoreError as exc:
            self._lose(host, f"cannot measure: {exc}", refused=True)
            return
        host.target, host.phase = ready.target, _Phase.IDLE
        self._note(f"{host.name} has joined: {ready.target.system.name}")
        if ready.target.key not in self._works:
            self._works[ready.target.key] = self._work(ready)

    def _measured(self, host: _Host, portion: BatchResult) -> None:
        assert host.target is not None
        work = self._works[host.target.key]
        differ = host.target.system.differences(portion.system)
        if portion.system.key != host.target.system.key:
            # Of which system these latencies are, nobody can tell.
            line = _changes(differ["identity"])
            host.changed |= {line: f"it became another system: {line}"}
            self._note(f"{host.name} has become another system ({line}): its portion is done again")
            self._put_back(host, line, blame=False)
            self._prepare(host)
            return
        if differ["recorded"]:
            line = _changes(differ["recorded"])
            if line not in host.changed:
                self._note(f"{host.name} changed while it measured: {line}")
            host.changed[line] = line
        try:
            self._merge(portion.results)
        except StoreError as exc:
            self._put_back(host, f"{host.name}: {exc}")
            host.phase = _Phase.IDLE
            return
        host.phase, host.share = _Phase.IDLE, None
        host.portions += 1
        host.new_bricks += portion.new_bricks
        if portion.eviction_short:
            host.changed["memory"] = "memory was short: bricks of large models may be too fast"
        host.rounds += portion.rounds
        host.disturbed_rounds += portion.disturbed_rounds
        loads = [x for x in (host.foreign_cores, portion.foreign_cores) if x is not None]
        host.foreign_cores = max(loads, default=None)
        work.out -= 1
        work.new_bricks += portion.new_bricks

    # Work

    def _put_back(self, host: _Host, why: str, *, blame: bool = True) -> None:
        """Let another do what a host did not."""
        assert host.target is not None
        work, share = self._works[host.target.key], host.share
        work.out -= 1
        work.tries[share] += blame
        if work.tries[share] < _TRIES:
            work.queue.appendleft(share)
        else:
            count = len(work.keys) if share is None else len(share)
            work.given_up.append(
                f"{count} bricks on {work.target.system.name} were given up after {_TRIES} tries:"
                f" {why}"
            )

    def _work(self, ready: Ready) -> _Work:
        """What a target that was not met before has to measure."""
        target, cut = ready.target, str(Granularity.parse(self._options.granularity))
        jobs: list[Job] = []
        for model in self._models:
            known = self._store.load_plan(model.digest, cut, target.key, name=model.name)
            if model.name in ready.errors or known is None:
                continue
            plan = known[0]
            bricks = self._store.load_bricks(plan.keys)
            jobs.append(Job(model, Decomposition(plan, bricks, known[1]), whole=False))
        keys = sorted({key for job in jobs for key in job.keys})
        settled = self._store.results(target.key, keys)
        missing = {
            key
            for key in keys
            if key not in settled or (self._options.retry and isinstance(settled[key], Failure))
        }
        shares: list[KeyBatch] = []
        if missing and not self._parted:
            shares = [None]
        elif missing:
            most = min(_MAX, max(_FEWEST, math.ceil(len(missing) / _PARTS)))
            parts = batches(spread_out(jobs, missing, needs_of(jobs)), missing, most)
            shares = [tuple(sorted(missing.intersection(part.keys))) for part in parts]
        return _Work(target, frozenset(keys), ready.errors, deque(shares))

    def _merge(self, results: bytes) -> None:
        """Take in what a host sent; StoreError where that cannot be trusted."""
        with tempfile.TemporaryDirectory(prefix="bricks-") as folder:
            path = Path(folder) / "results.jsonl"
            path.write_bytes(results)
            try:
                self._store.merge(path, mismatch)
            except StoreError as exc:
                raise StoreError(str(exc).replace(str(path), "what it sent")) from exc

    def _reported(self, work: _Work) -> TargetReport:
        settled = self._store.results(work.target.key, sorted(work.keys))
        missing = len(work.keys) - len(settled)
        predicted = missing if work.over and not self._parted and not work.given_up else 0
        return TargetReport(
            target=work.target,
            bricks=len(work.keys),
            new_bricks=work.new_bricks,
            predicted_bricks=predicted,
            unfinished=missing - predicted,
            failures=tuple(r for r in settled.values() if isinstance(r, Failure)),
            errors=work.errors,
            given_up=tuple(work.given_up),
        )

    def _show(self) -> None:
        if not self._hosts:
            self._progress("waiting for hosts to join", 0.0)
            return
        wanted = sum(len(share or ()) for work in self._works.values() for share in work.queue)
        wanted += sum(len(host.share or ()) for host in self._hosts.values())
        done = sum(work.new_bricks for work in self._works.values())
        each = ", ".join(f"{host.name} {host.new_bricks}" for host in self._hosts.values())
        self._progress(f"bricks measured: {each}", done / max(1, done + wanted))


def _changes(differ: Mapping[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{fact} from {old} to {new}" for fact, (old, new) in differ.items())
