"""The content of a portable suite: the bricks of models in groups, what matters most first.

What its program has measured elsewhere is imported here. Must not know any runtime, nor how
archives are written.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks import backends
from bricks.backends.portable import Portable
from bricks.decompose.granularity import Granularity
from bricks.errors import BricksError, ModelError, StoreError, UsageError, first_line
from bricks.graph.program import origin_of
from bricks.graph.view import parse_model
from bricks.measure.walk_builder import WalkOptions, walk_of
from bricks.samples.call_overhead import DEVICE_PROBES, PHASE_PROBES, PROBES, call_counts
from bricks.samples.measurement import PROTOCOL
from bricks.session.options import DISPLACED_BYTES
from bricks.session.plans import calls_on
from bricks.session.plans import decomposed as cut_translated
from bricks.suite.portable import PortableContent, PortableVariant, RunResults
from bricks.system.allocator import KEPT, KEPT_TUNABLES, TUNABLES
from bricks.zoo import zoo_folder

if TYPE_CHECKING:
    from bricks.decompose.plan import Decomposition
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.store import Store
    from bricks.store.merge import Merged, Mismatch

# Groups of a model's bricks: up to which share of its expected time, and how many rounds.
_GROUPS = ((0.8, 8), (0.97, 5), (1.0, 3))
# Chains of so many trivial nodes or calls, by key.
_CHAINS = {key: length for length, key in PROBES.items()}
# A group's tensors take no more memory, if it has several bricks.
_GROUP_BYTES = 1 << 30
_MAX_EVICTION_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class PortableModel:
    """A model of a variant: its plan and bricks; ``code`` is the origin of a program along."""

    name: str
    decomposition: Decomposition
    code: Mapping[str, Any] | None = None


# Models by provider, with notes.
Variants = dict[str, tuple[list[PortableModel], list[str]]]


@dataclass(slots=True)
class _Files:
    """What variants share: records, pieces and plans by key, and code by path."""

    records: dict[str, Any] = field(default_factory=dict)
    pieces: dict[str, Any] = field(default_factory=dict)
    plans: dict[str, Any] = field(default_factory=dict)
    code: dict[str, bytes] = field(default_factory=dict)


def portable_content(
    workspace: Workspace, decomposed: Sequence[tuple[Model, Decomposition]], *, code: bool
) -> PortableContent:
    """The content of a suite of models; with ``code``, the users' programs are along.

    Programs of the zoo always are. Raises :class:`UsageError` if the runtime has no such suites.
    """
    offer = backends.offer(workspace.runtime.backend)
    if not isinstance(offer, Portable):
        raise UsageError(f"{offer.name} has no portable suites: leave out --portable")
    files = _Files()
    own = [
        PortableModel(model.name, cut, _code_of(model, files.code, own=code))
        for model, cut in decomposed
    ]
    runtime = workspace.runtime
    models: Variants = {runtime.provider: (own, [])}
    models |= _translated(workspace, offer.providers, decomposed, own)
    variants = {
        provider: _variant(offer, of_provider, files, notes)
        for provider, (of_provider, notes) in models.items()
    }
    kept = runtime.allocator == KEPT
    facts = {
        "runner": offer.runner,
        "default": runtime.provider,
        "protocol": PROTOCOL,
        "granularity": str(workspace.granularity),
        "runtime": {
            name: fact
            for name, fact in runtime.to_json().items()
            if name not in ("build", "version", "provider", "threads")
        },
        "made_with": {"version": runtime.version, "vectors": workspace.target.system.vectors},
        "probes": {"chains": _CHAINS, "phases": PHASE_PROBES, "device": DEVICE_PROBES},
        "phases": sorted({name for _, cut in decomposed for name in call_counts(cut.plan)}),
        "instruments": offer.instruments(_CHAINS),
        "environment": {TUNABLES: ":".join(KEPT_TUNABLES)} if kept else {},
    }
    modules = [offer.runner.partition(":")[0], *offer.modules]
    return PortableContent(
        facts, variants, files.records, files.pieces, files.plans, modules, files.code
    )


def _translated(
    workspace: Workspace,
    providers: Sequence[str],
    decomposed: Sequence[tuple[Model, Decomposition]],
    own: Sequence[PortableModel],
) -> Variants:
    """Models as further providers run them, with notes on those that could not be translated."""
    found: Variants = {}
    for provider in providers:
        models, notes = found.setdefault(provider, ([], []))
        for (model, cut), as_here in zip(decomposed, own, strict=True):
            try:
                there, assumed = calls_on(provider, workspace.runtime.backend, model)
            except BricksError as error:
                problem = first_line(error)
                named = problem.startswith(model.name)
                notes.append(problem if named else f"{model.name}: {problem}")
                continue
            granularity = Granularity.parse(cut.plan.granularity)
            other = cut_translated(there, assumed, granularity)
            models.append(PortableModel(model.name, other, as_here.code))
    return found


def _code_of(model: Model, code: dict[str, bytes], *, own: bool) -> Mapping[str, Any] | None:
    """The origin of a program whose code goes along, which is added to ``code``."""
    origin = origin_of(parse_model(model.skeleton))
    where, _, function = ("" if origin is None else origin.entry).rpartition(":")
    if origin is None or not where.endswith(".py") or not (own or not origin.folder):
        return None
    file = Path(origin.folder or zoo_folder(), where)
    if not file.is_file():
        return None
    name = where
    if origin.folder:  # a path that tells nothing of the user's folders
        name = f"own/{hashlib.sha256(origin.folder.encode()).hexdigest()[:8]}/{file.name}"
    code[name] = file.read_bytes()
    return {"entry": f"{name}:{function}", "options": dict(origin.options)}


def _variant(
    offer: Portable, models: Sequence[PortableModel], files: _Files, notes: Sequence[str]
) -> PortableVariant:
    programs: list[dict[str, Any]] = []
    groups: list[dict[str, Any]] = []
    problems, taken = list(notes), set[str]()
    for model in models:
        cut = model.decomposition
        # Bricks become records and pieces; some cannot travel.
        failed: dict[str, str] = {}
        for key, brick in cut.bricks.items():
            encoded = b64encode(brick.model).decode()
            files.records[key] = {"key": key, "model": encoded, **brick.to_json()}
            if key not in files.pieces:
                try:
                    files.pieces[key] = offer.piece(parse_model(brick.model))
                except BricksError as error:
                    failed[key] = first_line(error)
        problems += [f"{model.name}: {reason}" for reason in sorted({*failed.values()})]
        plan = cut.plan
        files.plans[plan.digest] = {"wall_s": 0.0, "plan": plan.to_json()}
        programs.append({
            "name": model.name, "digest": plan.digest, "plan": f"plans/{plan.digest}.json",
            "counts": dict(plan.counts), "code": model.code,
        })  # fmt: skip
        groups += _groups_of(cut, {*failed}, taken)
    ordered = sorted(groups, key=lambda group: group["level"])
    return PortableVariant(programs, ordered, problems)


def _groups_of(
    cut: Decomposition, failed: Collection[str], taken: set[str]
) -> Iterator[dict[str, Any]]:
    """Groups of the bricks of a model that no group has ``taken`` before."""
    shares = _shares(cut)
    ordered = sorted(shares, key=lambda key: -shares[key])
    before, level = 0.0, 0
    keys: list[str] = []
    for key in ordered:
        if before > _GROUPS[level][0] or _bytes_of(cut, keys) > _GROUP_BYTES:
            yield from _group(cut, keys, level, failed)
            keys = []
        while before > _GROUPS[level][0] and level < len(_GROUPS) - 1:
            level += 1
        before += shares[key]
        if key not in taken and key not in failed:
            taken.add(key)
            keys.append(key)
    yield from _group(cut, keys, level, failed)


def _shares(cut: Decomposition) -> dict[str, float]:
    """The share of each brick in the time of its model that a typical host would take."""
    from bricks.predict.features import extract_features, in_context
    from bricks.predict.roofline import Roofline

    bare = {key: extract_features(brick) for key, brick in cut.bricks.items()}
    features = in_context(bare, [cut.plan.usage])
    seconds = Roofline.usual().seconds([*features.values()])
    counts = cut.plan.counts
    times = {key: max(1, counts[key]) * float(s) for key, s in zip(features, seconds, strict=True)}
    total = sum(times.values()) or 1.0
    return {key: time / total for key, time in times.items()}


def _bytes_of(cut: Decomposition, keys: Collection[str]) -> int:
    return sum(int(cut.bricks[key].bytes_moved) for key in keys)


def _group(
    cut: Decomposition, keys: Sequence[str], level: int, failed: Collection[str]
) -> Iterator[dict[str, Any]]:
    if keys:
        options = WalkOptions(avoid=failed, max_eviction_bytes=_MAX_EVICTION_BYTES)
        walk = walk_of(cut, keys, options)
        events = walk.allocation_events(walk.steps) or [[] for _ in walk.steps]
        steps: list[dict[str, Any]] = [
            {
                "key": step.key, "load": step.load, "inputs": step.inputs, "outputs": step.outputs,
                "timed": step.timed, "weight": step.weight, "repeated": step.repeated,
                "before": before,
            }
            for step, before in zip(walk.steps, events, strict=False)
        ]  # fmt: skip
        yield {
            "model": cut.plan.model, "level": level, "rounds": _GROUPS[level][1],
            "keys": list(keys), "bytes": _bytes_of(cut, {step["key"] for step in steps}),
            "eviction_bytes": walk.eviction_bytes(walk.steps),
            "displaced_bytes": list(DISPLACED_BYTES),
            "region_bytes": walk.region_bytes, "steps": steps,
        }  # fmt: skip


def merge_run(store: Store, path: Path, mismatch: Mismatch) -> Merged:
    """Merge a file of results: all of it, or none.

    Raises :class:`SuiteError` for a file that was changed, and :class:`StoreError` for one whose
    records cannot be true.
    """
    results = RunResults.read(path)
    try:
        return store.contents.merge_records(results.records(), mismatch)
    except (ModelError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as exc:
        problem = f"it lacks {exc}" if isinstance(exc, KeyError) else first_line(exc)
        raise StoreError(f"{path} is refused, nothing was imported: {problem}") from exc
