"""Measurements out of a profiler's trace: samples of the bricks that its calls equal.

They are less certain than a campaign's: the profiler takes time of its own, there are few steps,
and of a device's cache only the state in these steps.

The profiler slows down the host, so its samples are never mixed with others: the target's system
has a fact of its own. A trace names its GPU, and little else of its host.

Probes of call overhead are pairs of a real step and of the same calls alone. Steps of a trace are
such pairs. They do not tell a phase's fixed part from the part of each call, so all of it counts
for its calls, and the other pairs have no difference.

A profiler writes no shapes of lists of indices, so a gather of many rows looks like one of few; nor
long lists. The call that reads the rows states their shape. Must not know how traces are written.
"""

from __future__ import annotations

import platform
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks import backends
from bricks.backends.profiler_trace import (
    CallMatch,
    ProfilerTrace,
    TracedDevice,
    TracedPhase,
    TraceFormat,
    Unmatched,
)
from bricks.decompose.identity import mismatch
from bricks.decompose.plan import Brick, Decomposition
from bricks.errors import StoreError, UsageError
from bricks.graph.call import PER_CALL
from bricks.samples.call_overhead import PHASE_PROBES, PROBES
from bricks.samples.measurement import PROTOCOL, Round
from bricks.session.defaults import GRANULARITY
from bricks.session.plans import decomposed, translated
from bricks.store import Merged, Published, Reading, Store, Union
from bricks.store.export import brick_record
from bricks.store.records import round_record
from bricks.system import Runtime, System, Target, fingerprint, physical_cores
from bricks.system.accelerator import ACCELERATOR, Accelerator
from bricks.system.cards import cards
from bricks.units.sample import Sample

if TYPE_CHECKING:
    from bricks.backends.offer import Offer
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.store.results_file import Record

# The fact in a system's identity that its samples are a profiler's.
PROFILED = "profiled"
_CPU, _GPU, _UNKNOWN = "CPU", "CUDA", "unknown"

# Chains of nodes that take nothing but their own time.
_NODE_S = 1e-9


@dataclass(frozen=True, slots=True)
class TracedHost:
    """What a user says of the host of a trace: its name, threads, and the runtime's version."""

    name: str | None = None
    threads: int | None = None
    version: str | None = None


def trace_target(
    trace: ProfilerTrace, offer: Offer, host: TracedHost, known: Reading, path: object
) -> Target:
    """The target of a trace in file ``path``; :class:`UsageError` if its host must be named.

    A trace of this host or of a GPU needs no name. ``known`` has facts of GPUs.
    """
    threads = host.threads
    if trace.device is not None:
        card, threads = _accelerator(trace.device, known, path), threads or 1
        words = "-".join(trace.device.name.lower().split())
        facts = {**_unknown_host(host), ACCELERATOR: card.to_json()}
        system = System(host.name or f"{words}-{PROFILED}", facts, {})
    elif host.name is not None:
        system = System(host.name, _unknown_host(host), {})
    elif trace.host_name not in (None, platform.node()):
        raise UsageError(f"{path} is of another host: name it with --host")
    else:
        here = fingerprint()
        facts = {**here.identity, PROFILED: True}
        system = System(f"{here.name}-{PROFILED}", facts, here.recorded)
    runtime = Runtime(
        backend=offer.name,
        version=host.version or _version(trace, offer),
        provider=_CPU if trace.device is None else _GPU,
        threads=threads or physical_cores(),
        brick_optimization="none",
    )
    return Target(system, runtime)


def _version(trace: ProfilerTrace, offer: Offer) -> str:
    """The version of the runtime here for a trace of a processor; a trace does not have it."""
    if trace.device is not None or offer.environment is None or offer.package is None:
        return _UNKNOWN
    return offer.environment.pinned(offer.package)


def _accelerator(device: TracedDevice, known: Reading, path: object) -> Accelerator:
    """The facts of a GPU of this name, from a known system or from its datasheet."""
    measured = (target.system.accelerator for target in known.systems.targets())
    published = (card.accelerator for card in cards())
    for accelerator in (*measured, *published):
        if accelerator is not None and accelerator.name == device.name:
            return accelerator
    raise StoreError(
        f"{path} is of {device.name}, and no facts of this GPU are known; nothing was imported"
    )


def _unknown_host(host: TracedHost) -> dict[str, Any]:
    """The identity of a host that is known by name alone."""
    unknown = (
        "cpu", "cpu_vendor", "cpu_family", "cpu_model", "cpu_stepping", "instruction_sets_digest",
        "physical_cores", "cpu_quota", "memory_gib", "memory_limit_gib", "architecture", "os",
    )  # fmt: skip
    facts: dict[str, Any] = dict.fromkeys(unknown)
    facts |= {"instruction_sets": [], "cache_bytes": {}, "logical_cpus": host.threads or 1}
    return {**facts, "host": host.name, PROFILED: True}


_UNNAMED = TracedHost()

# Decomposes the model that ran in a trace for the trace's target.
DecomposedOn = Callable[[Target], Decomposition]


@dataclass(frozen=True, slots=True)
class ImportedTrace:
    """What became of a trace: ``merged`` rows of the cache, and calls by what they are.

    ``matched`` of the ``calls`` equal known bricks, ``bricks`` of them. ``left_out`` counts the
    others by why they do not, and by operator. ``unfinished`` calls and ``loose_kernels`` as in
    :class:`~bricks.backends.profiler_trace.ProfilerTrace`.
    """

    target: Target
    merged: Merged
    calls: int
    matched: int
    bricks: int
    left_out: Mapping[Unmatched, Mapping[str, int]]
    unfinished: int
    loose_kernels: int

    @property
    def unknown(self) -> Mapping[str, int]:
        """Calls that equal no known brick, by operator."""
        return self.left_out.get(Unmatched.UNKNOWN, {})

    @property
    def unseen(self) -> Mapping[str, int]:
        """Calls of which the trace tells too little, by operator."""
        parts = (of for why, of in self.left_out.items() if why is not Unmatched.UNKNOWN)
        return sum(map(Counter, parts), Counter[str]())


def trace_offer(path: Path) -> tuple[Offer, TraceFormat] | None:
    """The runtime whose profiler wrote the file, and its format; None for another file."""
    for offer in backends.offers():
        of = offer.trace_format()
        if of is not None and of.recognises(path):
            return offer, of
    return None


def decomposed_on(workspace: Workspace, read: Callable[[], Model]) -> DecomposedOn:
    """A function that decomposes a model for a target: on a GPU, the calls that it makes there.

    The model is read when it is needed. The function raises :class:`~bricks.errors.UsageError` for
    an ONNX model on a GPU.
    """

    def of(target: Target) -> Decomposition:
        model = read()
        if target.system.accelerator is None:
            return workspace.plans.decompose(model)
        there, notes = translated(model, target)
        return decomposed(there, notes, workspace.granularity)

    return of


class TraceImport:
    """Imports traces in the format ``of`` into ``store``; ``offer`` is the profiler's runtime."""

    def __init__(self, store: Store, offer: Offer, of: TraceFormat) -> None:
        self._store, self._offer, self._format = store, offer, of
        self._known: Reading = Union(store, Published())

    def run(
        self, path: Path, host: TracedHost = _UNNAMED, model: DecomposedOn | None = None
    ) -> ImportedTrace:
        """Import one file; ``model`` is the one that ran in it, if it is known.

        Raises :class:`StoreError` for a trace that tells too little, or without a known call.
        """
        trace = self._format.read(path)
        target = trace_target(trace, self._offer, host, self._known, path)
        ran = None if model is None else model(target)
        own = {} if ran is None else ran.bricks
        bricks = {**self._known_bricks(), **own}
        matcher = self._format.matcher(bricks, own)
        matches = proven(trace, [matcher.match(call) for call in trace.calls], ran)
        samples = _samples(trace, matches)
        if not samples:
            remedy = "name the model that ran with --model"
            if ran is not None:
                remedy = "give the --model and --batch that ran in it, with the same shapes"
            raise StoreError(
                f"{path} has {len(trace.calls)} calls, and none is a known brick: {remedy}"
            )
        runtime = target.runtime.to_json()
        records: list[Record] = [
            ("system", target.system.to_json()),
            ("target", {"key": target.key, "system": target.system.key, "runtime": runtime}),
        ]
        records += [("brick", brick_record(bricks[key])) for key in dict.fromkeys((*own, *samples))]
        if ran is not None:
            plan = {"target": target.key, "wall_s": ran.wall_s, "plan": ran.plan.to_json()}
            records.append(("plan", plan))
        rounds = {key: [*_rounds(of)] for key, of in samples.items()} | _overhead_rounds(trace)
        records += [_measurement(target, key, of) for key, of in rounds.items()]
        merged = self._store.contents.merge_records(records, mismatch)
        return _imported(trace, target, merged, matches)

    def _known_bricks(self) -> dict[str, Brick]:
        keys: dict[str, None] = {}
        for target in self._known.systems.targets():
            if target.runtime.backend == self._offer.name:
                for _, usage in self._known.plans.usage(target.key, GRANULARITY):
                    keys |= dict.fromkeys(usage)
                keys |= dict.fromkeys(self._known.measurements.costs(target.key))
        return self._known.plans.load_bricks(list(keys))


def _samples(
    trace: ProfilerTrace, matches: Sequence[CallMatch]
) -> dict[str, dict[int | None, list[Sample]]]:
    samples: dict[str, dict[int | None, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for call, match in zip(trace.calls, matches, strict=True):
        for key in match.keys:
            samples[key][call.step].append(call.sample)
    return samples


def _rounds(by_step: Mapping[int | None, Sequence[Sample]]) -> Iterator[Round]:
    """A round for each step; of a single step a round for each run, whose spread is known then."""
    if len(by_step) > 1:
        yield from map(Round.of, by_step.values())
        return
    for samples in by_step.values():
        yield from (Round.of([sample]) for sample in samples)


def _measurement(target: Target, key: str, rounds: Sequence[Round]) -> Record:
    taken_s = sum(sum(round_.host_s) for round_ in rounds)
    facts = {"target": target.key, "brick": key, "protocol": PROTOCOL, "wall_s": taken_s}
    return "measurement", {**facts, "rounds": list(map(round_record, rounds))}


def _imported(
    trace: ProfilerTrace, target: Target, merged: Merged, matches: Sequence[CallMatch]
) -> ImportedTrace:
    pairs = list(zip(trace.calls, matches, strict=True))
    left_out: dict[Unmatched, Counter[str]] = defaultdict(Counter)
    for call, match in pairs:
        if match.unmatched is not None:
            left_out[match.unmatched][call.operator] += 1
    return ImportedTrace(
        target,
        merged,
        calls=len(pairs),
        matched=sum(1 for match in matches if match.keys),
        bricks=len({key for match in matches for key in match.keys}),
        left_out=left_out,
        unfinished=trace.unfinished,
        loose_kernels=trace.loose_kernels,
    )


def _overhead_rounds(trace: ProfilerTrace) -> dict[str, list[Round]]:
    """The rounds of the probes of each phase in ``trace``, one for each step; empty without steps.

    A call of the runtime is a call of an operator, so nothing is around it.
    """
    by_phase: dict[str, list[TracedPhase]] = defaultdict(list)
    for phase in trace.phases:
        by_phase[phase.name].append(phase)
    rounds: dict[str, list[Round]] = {}
    for name, phases in by_phase.items():
        steps = [_round(phase.taken_s / phase.calls) for phase in phases]
        alone = [_round(phase.in_calls_s / phase.calls) for phase in phases]
        for part, (step, calls) in PHASE_PROBES[name].items():
            rounds[step] = steps if part == PER_CALL else alone[:1]
            rounds[calls] = alone if part == PER_CALL else alone[:1]
    if not rounds:
        return {}
    return {**rounds, **{key: [_round(n * _NODE_S)] for n, key in PROBES.items()}}


def _round(latency_s: float) -> Round:
    return Round.of([Sample(latency_s)])


def proven(
    trace: ProfilerTrace, matches: Sequence[CallMatch], ran: Decomposition | None
) -> list[CallMatch]:
    """The matches of a trace's calls, with those that only their readers prove.

    A call is proven to be one of its candidates if a brick that reads its results in the program
    ``ran`` is matched, all shapes stated, after it in its step and before the next equal call. Of
    several candidates, one alone must be proven, and so for all equal calls of the step: else the
    results of one may be read after the next call.
    """
    readers = {} if ran is None else _readers(ran)
    kept = list(matches)
    # What is matched after a call, by its step, until an equal call; by None to the step's end.
    after: dict[int | None, dict[object, set[str]]] = defaultdict(lambda: {None: set()})
    equals: dict[object, list[int]] = defaultdict(list)
    for number in reversed(range(len(kept))):
        call, match = trace.calls[number], matches[number]
        seen = after[call.step]
        if not match.candidates:
            for matched in seen.values():
                matched.update(match.keys)
            continue
        equal = (call.operator, call.arguments)
        later = seen.get(equal, seen[None])
        groups = (
            tuple(key for key in group if not later.isdisjoint(readers.get(key, ())))
            for group in match.candidates
        )
        found = [group for group in groups if group]
        kept[number] = (
            CallMatch(found[0]) if len(found) == 1 else CallMatch(unmatched=match.unmatched)
        )
        if len(match.candidates) > 1:
            equals[call.step, *equal].append(number)
        seen[equal] = set()
    for numbers in equals.values():
        if not all(kept[number].keys for number in numbers):
            for number in numbers:
                kept[number] = CallMatch(unmatched=matches[number].unmatched)
    return kept


def _readers(ran: Decomposition) -> dict[str, set[str]]:
    """The keys of the bricks that read results of each brick."""
    readers: dict[str, set[str]] = defaultdict(set)
    for producer, consumer in ran.plan.edges():
        readers[ran.plan.occurrences[producer].brick].add(ran.plan.occurrences[consumer].brick)
    return readers
