"""Whether two runtimes compute the same with a model: checked once for each pair, and kept.

A runtime that is faster because it computes something else is no answer. Both runtimes, or versions
of one, get the same inputs and weights, and their outputs are compared with each other. Where these
differ, a reference in double precision tells which of them errs. Every answer over several runtimes
has its verdicts from here. Must not know how that is shown.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from bricks import backends
from bricks.closing import Closing
from bricks.errors import BackendError, ModelError, WorkerError
from bricks.graph.form import ModelForm
from bricks.system import derived_files

if TYPE_CHECKING:
    import numpy as np

    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.system import Target

# Changes with the data that models are run with, and with what counts as a difference.
_RULE = 2

# The greatest difference that quantised models and runtimes with 16-bit floats explain, relative to
# the greatest magnitude of an output: of the zoo's models, 0.03 at most.
_ROUNDED = 0.1

# Larger weights are not written to a file in passing.
_MOST_BYTES = 1 << 30

# Each runs twice: outputs that differ from run to run are random.
_RUNS = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether outputs agree; None if they were not compared, for a ``reason``.

    ``output`` is the one that differs most, by ``difference``, relative to its greatest magnitude;
    more than ``allowed`` is a disagreement. ``difference`` is None for a ``reason``. ``errs`` are
    the runtimes whose outputs differ from the reference; None if there is none.
    """

    agree: bool | None
    output: str | None = None
    difference: float | None = None
    allowed: float | None = None
    reason: str | None = None
    errs: Sequence[str] | None = None


NOT_COMPARED = Verdict(None, reason="not compared yet")


@dataclass(frozen=True, slots=True)
class Agreement:
    """The ``verdict`` on the outputs of ``model`` with ``one`` and ``other``.

    These are names of runtimes, with their versions for two versions of one runtime.
    """

    FACTS: ClassVar = (
        "model", "one", "other",
        *(
            (f"verdict.{name}", name)
            for name in ("agree", "output", "difference", "allowed", "reason", "errs")
        ),
    )  # fmt: skip

    model: str
    one: str
    other: str
    verdict: Verdict

    def concerns(self, runtime: str | None = None) -> bool:
        """Whether outputs differ, and ``runtime``, if one is named, may be the one that errs."""
        errs = self.verdict.errs
        return self.verdict.agree is False and (runtime is None or not errs or runtime in errs)


class Agreements(Closing):
    """Verdicts on runtimes of this host; use it as a context manager.

    ``opened`` are workspaces with these runtimes; others are opened like the first. Without
    ``check``, only kept verdicts are given, and others are unknown.
    """

    def __init__(self, *opened: Workspace, check: bool) -> None:
        self._base, self._check = opened[0], check
        self._opened = ExitStack()
        self._workspaces = {_version(of.target): of for of in opened}

    def close(self) -> None:
        """End the processes that ran models."""
        self._opened.close()

    def of(self, model: Model, one: Target, other: Target) -> Agreement:
        """Whether both targets compute the same with ``model``, of which each has an estimate."""
        pair = sorted((one, other), key=_order)
        known = _kept(model.name, model.digest, pair)
        if known is None and self._check:
            self._base.progress(f"comparing outputs of {model.name}", 1.0)
            verdict = self.checked(model, dict(zip(_names(pair), pair, strict=True)))
            derived_files.keep(json.dumps(asdict(verdict)).encode(), _file(model.digest, pair))
            known = Agreement(model.name, *_names(pair), verdict)
        return known or _not_compared(model.name, pair)

    def with_others(self, model: Model) -> list[Agreement]:
        """Whether the first workspace's runtime computes what others do that ran ``model`` here.

        Those are runtimes for which the cache has a plan of the model on this system.
        """
        target, store = self._base.target, self._base.store
        others = {
            other.runtime.backend: other
            for other in store.systems.targets()
            if other.system.key == target.system.key
            and other.runtime.backend != target.runtime.backend
            and compares(other.runtime.backend)
            and store.plans.load(
                model.digest, str(self._base.granularity), other.key, name=model.name
            )
            is not None
        }
        agreements = []
        for name, other in sorted(others.items()):
            try:
                agreements.append(self.of(model, target, self._workspace(name).target))
            except BackendError as error:  # it is not installed any more
                names = _names(sorted((target, other), key=_order))
                agreements.append(Agreement(model.name, *names, Verdict(None, reason=str(error))))
        return agreements

    def checked(self, model: Model, pair: Mapping[str, Target]) -> Verdict:
        """Run ``model`` with a ``pair`` of runtimes, by their names, and compare the outputs."""
        from bricks.graph.view import parse_model, without_values
        from bricks.measure.protocol.models import WriteReference
        from bricks.session import whole_models

        size_bytes = sum(
            type_.size_bytes for type_ in without_values(parse_model(model.skeleton)).values()
        )
        if size_bytes > _MOST_BYTES:
            return Verdict(None, reason=f"its weights take {size_bytes >> 20} MiB")
        with tempfile.TemporaryDirectory(prefix="bricks-", ignore_cleanup_errors=True) as folder:
            data = Path(folder) / "data.npz"
            files = {name: Path(folder) / f"{name}.npz" for name in pair}
            request = WriteReference(
                model.name, str(model.folder), model.skeleton, str(data), every=False, values=False
            )
            try:
                self._base.graphs.ask(model, request)
                for name, file in files.items():
                    known = self._workspaces.get(_version(pair[name]))
                    evaluation = whole_models.evaluate(
                        known or self._workspace(pair[name].runtime.backend), model,
                        repeats=_RUNS, file=str(data), outputs=str(file),
                    )  # fmt: skip
                    if evaluation.distinct > 1:
                        return Verdict(None, reason=f"with {name}, each run has other results")
            except (BackendError, ModelError, WorkerError) as error:
                return Verdict(None, reason=str(error).removeprefix(f"{model.name}: "))
            allowed = _Allowed.of(model, [target.runtime.backend for target in pair.values()])
            verdict = allowed.verdict(*map(_outputs, files.values()))
            if verdict.agree is not False:
                return verdict
            with suppress(BackendError, ModelError, WorkerError):  # no reference runs the model
                written = self._base.graphs.ask(model, replace(request, values=True))
                if written.reason is None:
                    return replace(verdict, errs=allowed.erring(files, data))
            return verdict

    def _workspace(self, runtime: str) -> Workspace:
        """A workspace with the installed version of a runtime."""
        opened = self._opened.enter_context(self._base.with_options(runtime=runtime))
        return self._workspaces.setdefault(_version(opened.target), opened)


def kept(model: str, digest: str, targets: Iterable[Target]) -> tuple[Agreement, ...]:
    """Verdicts on ``model`` for runtimes of ``targets``, which run nothing; unknown ones too.

    Only targets of one system have a verdict.
    """
    known: dict[tuple[str, ...], Agreement] = {}
    unknown: dict[tuple[str, ...], Agreement] = {}
    versions = {(of.system.key, *_version(of)): of for of in targets}
    for pair in combinations(sorted(versions.values(), key=_order), 2):
        names = tuple(of.runtime.backend for of in pair)
        found = None
        if pair[0].system.key == pair[1].system.key:
            found = _kept(model, digest, pair)
        if found is not None:
            known.setdefault(names, found)
        elif len({*names}) > 1:
            unknown.setdefault(names, _not_compared(model, pair))
    return tuple((unknown | known).values())


def _kept(model: str, digest: str, pair: Sequence[Target]) -> Agreement | None:
    """The verdict on a pair in order, if it is known without running anything."""
    verdict = _read(_file(digest, pair))
    if not all(compares(target.runtime.backend) for target in pair):
        verdict = Verdict(None, reason="only outputs of ONNX models are compared")
    return None if verdict is None else Agreement(model, *_names(pair), verdict)


def _not_compared(model: str, pair: Sequence[Target]) -> Agreement:
    return Agreement(model, *_names(pair), NOT_COMPARED)


def _version(target: Target) -> tuple[str, str]:
    return target.runtime.backend, target.runtime.version


def _order(target: Target) -> tuple[int, str, str]:
    """The sort key of a pair, so that it has one verdict whatever is named first."""
    names, runtime = backends.names(), target.runtime.backend
    return names.index(runtime) if runtime in names else len(names), *_version(target)


def _names(pair: Sequence[Target]) -> tuple[str, str]:
    one, other = pair
    if one.runtime.backend != other.runtime.backend:
        return one.runtime.backend, other.runtime.backend
    return " ".join(_version(one)), " ".join(_version(other))


def compares(runtime: str) -> bool:
    """Whether outputs of the runtime called ``runtime`` are compared: it computes ONNX models."""
    if runtime not in backends.names():  # of another host's packages
        return False
    offer = backends.offer(runtime)
    return offer.computes and offer.accepts is ModelForm.MODELS


def _file(digest: str, pair: Sequence[Target]) -> Path:
    """The file of a verdict: on a host, of a model, with two runtimes in order."""
    facts = [str(_RULE), pair[0].system.key, digest]
    for target in pair:
        runtime = target.runtime
        facts += runtime.backend, runtime.version, runtime.provider, runtime.optimization
    name = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]
    return derived_files.folder("agreement") / f"{name}.json"


def _read(file: Path) -> Verdict | None:
    """The verdict in a file; None without one, or for a damaged file: it is made again."""
    try:
        verdict = Verdict(**json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    derived_files.note_use(file)
    return verdict


def _outputs(file: Path) -> list[np.ndarray]:
    from bricks.measure.worker.outputs import outputs_in

    return [*outputs_in(file)]


@dataclass(frozen=True, slots=True)
class _Allowed:
    """Compares ``outputs`` of a model; differences up to ``rounded`` are rounding, 0 for none.

    Those that another order of summation explains are allowed, too.
    """

    outputs: Sequence[str]
    rounded: float

    @classmethod
    def of(cls, model: Model, runtimes: Iterable[str]) -> _Allowed:
        from bricks.backends.quantising import quantised
        from bricks.graph.topology import all_nodes
        from bricks.graph.view import parse_model

        graph = parse_model(model.skeleton).graph
        narrow = any(backends.offer(name).narrow for name in runtimes)
        rounded = _ROUNDED if narrow or quantised(all_nodes(graph)) else 0.0
        return cls([info.name for info in graph.output], rounded)

    def verdict(
        self, expected: Sequence[np.ndarray | None], actual: Sequence[np.ndarray]
    ) -> Verdict:
        """The verdict on the output that differs most; outputs that are None are not compared."""
        verdicts = map(self._of_output, self.outputs, expected, actual)
        known = [verdict for verdict in verdicts if verdict.agree is not None]
        return max(known, key=_beyond, default=Verdict(None, reason="it has no output of numbers"))

    def _of_output(self, name: str, expected: np.ndarray | None, actual: np.ndarray) -> Verdict:
        from bricks.measure.worker.outputs import TOLERANCE
        from bricks.samples.evaluation import error_norms
        from bricks.units.facts import Missing

        if expected is None or not {expected.dtype.kind, actual.dtype.kind} <= {*"biuf"}:
            return Verdict(None, name, reason="it is no tensor of numbers")
        allowed = max(self.rounded, TOLERANCE.get(actual.dtype.name, 0.0))
        norms = error_norms(expected, actual)
        if isinstance(norms, Missing):
            return Verdict(False, name, None, allowed, norms.reason)
        difference = norms.linf if norms.linf_relative is None else norms.linf_relative
        return Verdict(difference <= allowed, name, difference, allowed)

    def erring(self, files: Mapping[str, Path], reference: Path) -> list[str]:
        """The runtimes whose outputs, in ``files``, differ from those in the ``reference``."""
        from bricks.graph.input_values import ReferenceValues

        values = ReferenceValues.load(reference).values
        expected = [values.get(name) for name in self.outputs]
        return [
            name
            for name, file in files.items()
            if self.verdict(expected, _outputs(file)).agree is False
        ]


def _beyond(of: Verdict) -> float:
    """How many times as much as allowed outputs differ."""
    if of.difference is None:
        return math.inf
    return of.difference / of.allowed if of.allowed else (math.inf if of.difference else 0.0)
