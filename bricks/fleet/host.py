"""What is done on a host of the fleet, as whoever deals out the work asks for it.

Models come in weightless, and what is measured goes out as a file of results, the same that
``bricks cache export`` writes: nothing is trusted on either side that would not be trusted of a
file. What belongs to one request of work, its models and a cache, is kept here under a name until
it is over. Must not know how hosts are reached, nor what others measure.
"""

from __future__ import annotations

import tempfile
import threading
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bricks._version import __version__
from bricks.analysis.batch import decompose_all
from bricks.errors import BricksError, FleetError
from bricks.graph.model import Model
from bricks.samples.call_overhead import PROBES
from bricks.session.bench import Bench
from bricks.session.options import Options
from bricks.suite import pack_model, unpack_model
from bricks.system import System, Target, fingerprint

# A request that was not heard of for so long is over: who made it must have ended.
_IDLE_S = 1800.0


@dataclass(frozen=True, slots=True)
class ModelPayload:
    """A model as it travels: its name and digest, and the compressed file without weights."""

    name: str
    digest: str
    skeleton: bytes

    @classmethod
    def of(cls, model: Model) -> ModelPayload:
        """What is sent of ``model``."""
        return cls(model.name, model.digest, zlib.compress(pack_model(model)))

    def opened(self) -> Model:
        """The model; SuiteError unless it is what its digest stands for."""
        return unpack_model("what was sent", self.name, self.digest, zlib.decompress(self.skeleton))


@dataclass(frozen=True, slots=True)
class Ready:
    """A host that has decomposed what it can of the models.

    ``errors`` are lines by the names of those that it cannot; ``results`` is a file of plans and
    bricks.
    """

    target: Target
    errors: dict[str, str]
    results: bytes


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What measuring some bricks came to; ``results`` is a file, ``system`` the host afterwards.

    ``foreign_cores``, ``rounds``, ``disturbed_rounds`` and ``eviction_short`` are as in
    :class:`bricks.Measured`.
    """

    results: bytes
    system: System
    new_bricks: int
    foreign_cores: float | None
    rounds: int
    disturbed_rounds: int
    eviction_short: bool
    wall_s: float


@dataclass
class _Request:
    bench: Bench
    folder: tempfile.TemporaryDirectory[str]
    models: list[Model]
    errors: dict[str, str]
    used_s: float = field(default_factory=time.monotonic)

    def close(self) -> None:
        self.bench.close()
        self.folder.cleanup()

    def export(self, keys: Sequence[str] | None) -> bytes:
        path = Path(self.folder.name) / "results.jsonl"
        wanted = None if keys is None else [*keys, *PROBES.values()]
        self.bench.store.export(path, [self.bench.target.key], package=__version__, keys=wanted)
        return path.read_bytes()


_requests: dict[str, _Request] = {}
_lock = threading.Lock()


def greet() -> dict[str, Any]:
    """Which version of the package runs here: another one might measure otherwise."""
    return {"package": __version__}


def prepare(request: str, options: Options, parcels: Sequence[ModelPayload]) -> Ready:
    """Take in the models of a request, and decompose them; anything under its name is forgotten."""
    _end_idle()
    finish(request)
    folder = tempfile.TemporaryDirectory(prefix="bricks-fleet-")
    bench = Bench(Path(folder.name) / "cache", options)
    made = _Request(bench, folder, [], {})
    try:
        # In this process nothing changes a target once it is known: so what it is now, it stays.
        models = [parcel.opened() for parcel in parcels]
        decompose_all(bench, models)
        for model in models:
            try:
                bench.decompose(model)
                made.models.append(model)
            except BricksError as exc:
                made.errors[model.name] = str(exc)
        bench.store.save_target(bench.target)
        results = made.export(None)
    except BaseException:
        made.close()
        raise
    with _lock:
        _requests[request] = made
    return Ready(bench.target, made.errors, results)


def measure(request: str, keys: Sequence[str] | None) -> BatchResult:
    """Measure the bricks ``keys`` of a request's models; None: as its options say, of all."""
    with _lock:
        known = _requests.get(request)
    if known is None:
        raise FleetError("the host has forgotten the models: it was started again meanwhile")
    known.used_s = time.monotonic()
    done = known.bench.measure(known.models, only=keys)
    known.used_s = time.monotonic()
    every = {key for model in known.models for key in known.bench.decompose(model).plan.keys}
    return BatchResult(
        known.export(sorted(every) if keys is None else keys),
        fingerprint(),
        done.new_bricks,
        done.foreign_cores,
        done.rounds,
        done.disturbed_rounds,
        done.eviction_short,
        done.wall_s,
    )


def finish(request: str) -> None:
    """Forget what belongs to a request."""
    with _lock:
        known = _requests.pop(request, None)
    if known is not None:
        known.close()


def finish_all() -> None:
    """Forget everything: the host leaves."""
    for request in list(_requests):
        finish(request)


def _end_idle() -> None:
    for request, known in list(_requests.items()):
        if time.monotonic() - known.used_s > _IDLE_S:
            finish(request)
