"""The result of decomposition: bricks, and the plan that lists their occurrences in a model.

Frozen data to be stored and sent, with the titles by which all outputs call models and bricks.

ONNX Runtime runs nodes in parallel only along *streams* that the caller defines: lists of nodes,
each run in the model's order, which wait for each other where one reads another's results. This
module derives the streams from the work in the graph before anything is measured. So each plan has
one division, and a whole model is measured once per number of workers. Must not read ONNX, nor know
latencies, runtimes or how titles are shown.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from bricks.decompose.allocated import PROGRAM, Allocated
from bricks.decompose.memory import Memory
from bricks.decompose.occurrence import Occurrence, Usage, usage_of
from bricks.decompose.planned_memory import Planned
from bricks.graph.types import TensorType, ValueType, type_from_json

# Consecutive runs of a brick that is measured without a model, and bytes of weights read before
# them: more than a core's own caches hold. Without that read, small bricks appear a third too
# fast; with four times as many bytes, up to a tenth too slow.
_RUNS, SURROUNDING_BYTES = 3, 4 << 20

_PLANNED = Planned()


@dataclass(frozen=True, slots=True)
class Brick:
    """A unique runnable subnetwork.

    ``model`` is its canonical form, a serialised ``ModelProto`` in which weights are initializers
    without values (``data_location == EXTERNAL``). ``inputs``, ``weights`` and ``outputs`` map
    the names in it to types, in canonical order. ``flops`` counts a multiply-add as two and is
    None where an operator's work isn't known. ``examples`` holds the values that inputs must have
    because they steer shapes, counts, axes or branches; they stand in the canonical form as well.
    """

    key: str
    model: bytes
    inputs: Mapping[str, ValueType]
    weights: Mapping[str, ValueType]
    outputs: Mapping[str, ValueType]
    operators: tuple[str, ...]
    flops: int | None
    examples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The fields except model and key as a JSON object; the inverse is :meth:`from_json`."""
        return {
            "inputs": _types_json(self.inputs),
            "weights": _types_json(self.weights),
            "outputs": _types_json(self.outputs),
            "operators": list(self.operators),
            "flops": self.flops,
            "examples": {name: list(values) for name, values in self.examples.items()},
        }

    @classmethod
    def from_json(cls, key: str, model: bytes, data: Mapping[str, Any]) -> Brick:
        """The inverse of :meth:`to_json`; ValueError (or KeyError) for invalid data."""
        flops, operators = data["flops"], data["operators"]
        if flops is not None and (type(flops) is not int or flops < 0):
            raise ValueError(f"brick {key} has {flops!r} operations")
        if not isinstance(operators, list) or not all(isinstance(name, str) for name in operators):
            raise ValueError(f"brick {key} has no list of operators")
        return cls(
            key=key,
            model=model,
            inputs=_types_of(data["inputs"]),
            weights=_types_of(data["weights"]),
            outputs=_types_of(data["outputs"]),
            operators=tuple(operators),
            flops=flops,
            examples={name: tuple(values) for name, values in dict(data["examples"]).items()},
        )

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights."""
        return sum(t.size_bytes for t in self.weights.values())

    @property
    def numeric_weight_bytes(self) -> int:
        """Bytes of all weights except texts, which have no fixed size."""
        return _bytes_but_texts(self.weights.values())

    @property
    def steering_ports(self) -> frozenset[int]:
        """Positions of the inputs that must have the values in ``examples``."""
        return frozenset(i for i, name in enumerate(self.inputs) if name in self.examples)

    @property
    def bytes_moved(self) -> int:
        """Bytes read or written if each tensor moves once: weights, inputs, outputs; no texts."""
        values = (*self.weights.values(), *self.inputs.values(), *self.outputs.values())
        return _bytes_but_texts(values)


def _types_json(types: Mapping[str, ValueType]) -> list[list[object]]:
    """Pairs of a name and a type, as a list: JSON objects have no order, but ports have one."""
    return [[name, type_.to_json()] for name, type_ in types.items()]


def _types_of(data: Sequence[Sequence[Any]]) -> dict[str, ValueType]:
    return {str(name): type_from_json(type_) for name, type_ in data}


def work_of(brick: Brick) -> float:
    """A rough amount of work in bytes: bytes moved, plus one byte for every twenty operations."""
    return (brick.flops or 0) / 20 + brick.bytes_moved


def _bytes_but_texts(types: Iterable[ValueType]) -> int:
    total = 0
    for type_ in types:
        try:  # not suppress(), which takes longer than the rest; this runs for every brick
            total += type_.size_bytes
        except KeyError:
            continue
    return total


@dataclass(frozen=True, slots=True)
class Plan:
    """A model as occurrences of bricks in execution order, sufficient for recomposing it.

    Values are numbers; ``inputs`` and ``outputs`` are the model's. Value ``v`` is of type
    ``types[v]``. ``assumed`` lists, one a line, observations from a run on synthetic data, which
    may differ for real data, and ``choices`` the keys of bricks with an If whose branch they chose,
    each with the title of its node. ``rewritten_bytes`` is the size of the weights that the runtime
    rewrites while it loads the model, before they get their final form; None if it isn't known, as
    in plans of earlier versions. ``rule`` is the version of the runtime's rule of grouping (see
    ``Offer.revised``). ``weight_bound`` are the keys of bricks that take about as long as
    reading their weights does (see ``context``); plans of earlier versions name none. ``memory``
    has the offsets or allocations of values, and the phases of a run.
    """

    model: str
    digest: str
    granularity: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    types: tuple[ValueType, ...]
    occurrences: tuple[Occurrence, ...]
    assumed: tuple[str, ...] = ()
    choices: tuple[tuple[str, str], ...] = ()
    rewritten_bytes: int | None = None
    rule: int = 0
    weight_bound: tuple[str, ...] = ()
    memory: Memory = _PLANNED

    @property
    def kind(self) -> str:
        """Whether a run is inference or a training step."""
        return self.memory.kind

    @property
    def inferences(self) -> int:
        """The number of inferences in one run: the first dimension of the first input, or 1."""
        shape = self.types[self.inputs[0]].shape if self.inputs else ()
        return max(1, int(shape[0])) if shape else 1

    @property
    def nodes(self) -> int:
        """Number of the graph's nodes; each counts once, also where bricks overlap."""
        return sum(o.sign * o.nodes for o in self.occurrences)

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the distinct bricks, in order of their first occurrence."""
        return tuple(dict.fromkeys(o.brick for o in self.occurrences))

    @property
    def counts(self) -> Counter[str]:
        """The net number of occurrences of each brick, by key; it may be 0 or less.

        It equals the number of occurrences, except for layers that overlapping bricks share.
        """
        counts: Counter[str] = Counter()
        for occurrence in self.occurrences:
            counts[occurrence.brick] += occurrence.sign
        return counts

    @property
    def copies(self) -> dict[str, int]:
        """Distinct sets of weights per brick."""
        return {key: usage.copies for key, usage in self.usage.items()}

    @property
    def usage(self) -> dict[str, Usage]:
        """The usage of each brick, by key."""
        return usage_of(self.occurrences)

    def edges(self) -> Iterator[tuple[int, int]]:
        """Pairs (producer, consumer) of occurrence positions, once per value that is passed on.

        A brick that begins with a layer of another brick depends on the other brick.
        """
        producer = {v: i for i, o in enumerate(self.occurrences) for v in o.made}
        for i, o in enumerate(self.occurrences):
            for v in o.inputs:
                if v in producer:
                    yield producer[v], i
            if o.repeats is not None:
                yield o.repeats, i + 1

    def producers(self) -> list[list[int]]:
        """For each occurrence, the sorted positions of the occurrences whose results it reads."""
        needed: list[set[int]] = [set() for _ in self.occurrences]
        for producer, consumer in self.edges():
            needed[consumer].add(producer)
        return [sorted(positions) for positions in needed]

    def problem(self, bricks: Mapping[str, Brick]) -> str | None:
        """The first inconsistency of an imported plan; None if it is consistent.

        ``bricks`` are all bricks that the plan names, by key.
        """
        defined, values = set(self.inputs), range(len(self.types))
        for i, o in enumerate(self.occurrences):
            brick, subject = bricks[o.brick], f"occurrence {i}"
            if (len(o.inputs), len(o.outputs)) != (len(brick.inputs), len(brick.outputs)):
                return f"{subject} has other ports than its brick"
            if not defined.issuperset(o.inputs):
                return f"{subject} reads what is made nowhere before"
            if not defined.isdisjoint(o.made) or len(set(o.made)) != len(o.made):
                return f"{subject} makes what is there already"
            if o.in_place is not None and o.in_place not in range(len(o.inputs)):
                return f"{subject} works in the place of an input that it has not"
            if o.repeats is not None and o.repeats not in range(i):
                return f"{subject} repeats what does not come before it"
            defined.update(o.made)
        if not defined.issuperset(self.outputs) or not all(v in values for v in defined):
            return "it names values that it says nothing of"
        rewritten = self.rewritten_bytes
        if rewritten is not None and (type(rewritten) is not int or rewritten < 0):
            return f"it says that {rewritten!r} bytes of weights are rewritten"
        if not set(self.keys).issuperset(self.weight_bound):
            return "it says of bricks that it has not that they are bound by their weights"
        if not set(self.keys).issuperset(key for key, _ in self.choices):
            return "it says of bricks that it has not that data chose their branches"
        return self.memory.problem(len(self.occurrences), len(self.types))

    def to_json(self) -> dict[str, Any]:
        """A small JSON object; the inverse is :meth:`from_json`."""
        data: dict[str, Any] = {
            "model": self.model,
            "digest": self.digest,
            "granularity": self.granularity,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "types": [t.to_json() for t in self.types],
            "occurrences": [o.to_json() for o in self.occurrences],
            "assumed": self.assumed,
        }
        if self.choices:
            data["choices"] = self.choices
        if self.rewritten_bytes is not None:
            data["rewritten_bytes"] = self.rewritten_bytes
        if self.rule:
            data["rule"] = self.rule
        if self.weight_bound:
            data["weight_bound"] = self.weight_bound
        return {**data, **self.memory.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """The inverse of :meth:`to_json`."""
        return cls(
            model=data["model"],
            digest=data["digest"],
            granularity=data["granularity"],
            inputs=tuple(data["inputs"]),
            outputs=tuple(data["outputs"]),
            types=tuple(type_from_json(t) for t in data["types"]),
            occurrences=tuple(map(Occurrence.from_json, data["occurrences"])),
            assumed=tuple(data.get("assumed", ())),
            choices=tuple((str(key), str(title)) for key, title in data.get("choices", ())),
            rewritten_bytes=data.get("rewritten_bytes"),
            rule=int(data.get("rule", 0)),
            weight_bound=tuple(map(str, data.get("weight_bound", ()))),
            memory=Allocated.from_json(data[PROGRAM]) if PROGRAM in data else _PLANNED,
        )


@dataclass(frozen=True, slots=True)
class Decomposition:
    """A plan with the bricks it names; ``wall_s`` are the seconds that decomposing took.

    ``unseen_weight_bytes`` counts the bytes of the model's weights that no brick has.
    """

    plan: Plan
    bricks: Mapping[str, Brick]
    wall_s: float
    unseen_weight_bytes: int = 0

    @property
    def flops(self) -> int | None:
        """Operations of all occurrences; None where the work of one isn't known."""
        total = 0
        for occurrence in self.plan.occurrences:
            work = self.bricks[occurrence.brick].flops
            if work is None:
                return None
            total += work
        return total

    @property
    def weight_bytes(self) -> int:
        """Bytes of the model's weights, each counted once; texts do not count."""
        total, seen = 0, set()
        for occurrence in self.plan.occurrences:
            types = self.bricks[occurrence.brick].weights.values()
            for number, type_ in zip_longest(occurrence.weights, types):
                if number in seen or type_.dtype == "STRING":
                    continue
                total += type_.size_bytes
                if number is not None:
                    seen.add(number)
        return total

    @property
    def largest_weight_bytes(self) -> int:
        """Bytes of the largest weight; texts do not count."""
        weights = (t for brick in self.bricks.values() for t in brick.weights.values())
        return max((t.size_bytes for t in weights if t.dtype != "STRING"), default=0)


def isolated_decomposition(
    brick: Brick,
    granularity: str,
    *,
    in_place: bool = False,
    surrounding_bytes: int = SURROUNDING_BYTES,
) -> Decomposition:
    """Return the decomposition of a model that runs ``brick`` a few times in a row.

    It stands for the model of a brick that has none. Each run has weights of its own, and comes
    after ``surrounding_bytes`` of other weights were read, so that the caches are about as in a
    model. With ``in_place`` the brick's first output overwrites its first input.
    """
    inputs, outputs = len(brick.inputs), len(brick.outputs)
    outputs_by_run = [
        tuple(range(inputs + i * outputs, inputs + (i + 1) * outputs)) for i in range(_RUNS)
    ]
    plan = Plan(
        model=brick.key,
        digest=f"alone-{brick.key}",  # not the key itself: a whole model is measured under this
        granularity=granularity,
        inputs=tuple(range(inputs)),
        outputs=outputs_by_run[-1],
        types=(*brick.inputs.values(), *_RUNS * (*brick.outputs.values(),)),
        occurrences=tuple(
            Occurrence(brick.key, tuple(range(inputs)), values, in_place=0 if in_place else None)
            for values in outputs_by_run
        ),
    )
    return Decomposition(plan, {brick.key: brick}, 0.0, surrounding_bytes)


def titles(plans: Sequence[Plan]) -> list[str]:
    """Return names of models; models of one name also have their inputs or, if needed, digests.

    ``plans`` may contain one model with several batch sizes, or two files of one name.
    """
    names = [plan.model for plan in plans]
    for detail in (_inputs, lambda plan: plan.digest[:11]):
        repeated = {title for title in names if names.count(title) > 1}
        names = [
            f"{title} ({detail(plan)})" if title in repeated else title
            for title, plan in zip(names, plans, strict=True)
        ]
    return names


def _inputs(plan: Plan) -> str:
    return ", ".join(str(plan.types[value]) for value in plan.inputs)


def shapes(brick: Brick) -> str:
    """Return the shapes of a brick's inputs, weights and outputs: ``1×8×8, 8×4 → 1×8×4``."""
    ends = (*brick.inputs.values(), *brick.weights.values()), brick.outputs.values()
    return " → ".join(", ".join(_shape(type_) for type_ in types) or "nothing" for types in ends)


def _shape(type_: ValueType) -> str:
    if not isinstance(type_, TensorType):
        return str(type_)
    sizes = "×".join(map(str, type_.shape)) or "1"
    return sizes if type_.dtype == "FLOAT" else f"{sizes} {type_.dtype.lower()}"


# The cost of a handover to another worker, in units of work: waking it takes some microseconds.
# An occurrence with less work than this is not worth moving.
_HANDOVER = 1e5


def streams_of(plan: Plan, bricks: Mapping[str, Brick], workers: int) -> tuple[int, ...]:
    """Return the stream number of each occurrence, by position; at most ``workers`` streams.

    Streams are numbered by first use. This is list scheduling with the model's order as the list:
    each occurrence goes to the worker that could begin it first, if the duration of each occurrence
    were proportional to its work.
    """
    work = {key: work_of(bricks[key]) for key in plan.keys}
    free = [0.0] * workers
    done: list[float] = []
    chosen: list[int] = []
    for i, producers in enumerate(plan.producers()):

        def begin(worker: int, producers: Sequence[int] = producers) -> float:
            waits = [done[p] + (_HANDOVER if chosen[p] != worker else 0.0) for p in producers]
            return max([free[worker], *waits])

        worker = min(range(workers), key=begin)  # the first of equals
        done.append(begin(worker) + work[plan.occurrences[i].brick])
        free[worker] = done[-1]
        chosen.append(worker)
    numbers = {worker: number for number, worker in enumerate(dict.fromkeys(chosen))}
    return tuple(numbers[worker] for worker in chosen)


def whole_key(plan: Plan, streams: Sequence[int], workers: int) -> str:
    """Return the key of the whole model run along ``streams``; its digest if there are none.

    The number of workers is part of the key, because idle workers still spin.
    """
    if not streams:
        return plan.digest
    text = json.dumps(list(streams), separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{plan.digest}-w{workers}-{digest}"
