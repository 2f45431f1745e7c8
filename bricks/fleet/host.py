"""The functions that the coordinator calls on a host of the fleet.

Models come in without weights, and measurements go out as a file of results, the same that
``bricks cache export`` writes: this data is checked on both sides as a file from anybody would be.
That does not make the fleet safe for strangers: a program that reaches the scheduler can run any
code on this host, not just these functions (``cluster.py``). Models and cache of one request are
kept under its name until it is over. Must not know how hosts are reached, nor what others measure.
"""

from __future__ import annotations

import tempfile
import threading
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks._version import __version__
from bricks.errors import BricksError, FleetError, SuiteError
from bricks.samples.call_overhead import ALL_PROBES
from bricks.samples.measurement import Sampling
from bricks.session import measuring
from bricks.session.batch import decompose_all
from bricks.session.workspace import Workspace
from bricks.suite import pack_model, unpack_model
from bricks.suite.archive import MAX_FILE_BYTES
from bricks.system import System, Target, fingerprint

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.session.options import Options

# A request without a call for so long is over: its coordinator must have ended.
_IDLE_S = 1800.0

# Of a compressed model, at most so much is decompressed at once to learn how large it is.
_PIECE_BYTES = 4 << 20

_requests: dict[str, _Request] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class ModelPayload:
    """A model as it travels: its name and digest, and the compressed file without weights."""

    name: str
    digest: str
    skeleton: bytes

    @classmethod
    def of(cls, model: Model) -> ModelPayload:
        """The payload of ``model``."""
        return cls(model.name, model.digest, zlib.compress(pack_model(model)))

    def unpack(self) -> Model:
        """The model; SuiteError if its digest stands for another, or it is too large for one."""
        self._check_size()
        return unpack_model("what was sent", self.name, self.digest, zlib.decompress(self.skeleton))

    def _check_size(self) -> None:
        """Raise SuiteError unless the skeleton decompresses to its end, within ``MAX_FILE_BYTES``.

        A few bytes can stand for gigabytes, so its size is counted before any of it is kept.
        """
        unpacker, packed, size = zlib.decompressobj(), self.skeleton, 0
        try:
            while not unpacker.eof and (piece := unpacker.decompress(packed, _PIECE_BYTES)):
                packed, size = unpacker.unconsumed_tail, size + len(piece)
                if size > MAX_FILE_BYTES:
                    raise SuiteError(
                        f"the model {self.name} that was sent is larger than"
                        f" {MAX_FILE_BYTES >> 20} MiB without its weights: refused; measure it on"
                        " each host, without --scheduler"
                    )
        except zlib.error as exc:
            raise self._damaged() from exc
        if not unpacker.eof:
            raise self._damaged()

    def _damaged(self) -> SuiteError:
        return SuiteError(
            f"the model {self.name} that was sent is cut off or damaged: send it again"
        )


@dataclass(frozen=True, slots=True)
class Ready:
    """A host that is ready to measure: it has decomposed the models that it can.

    ``errors`` are lines by the names of the models that it cannot decompose; ``results`` is a file
    of results with the plans and bricks.
    """

    target: Target
    errors: dict[str, str]
    results: bytes


@dataclass(frozen=True, slots=True)
class BatchResult(Sampling):
    """A measured batch of bricks: a file of results, and the host's system afterwards."""

    results: bytes
    system: System
    new_bricks: int
    wall_s: float


@dataclass
class _Request:
    workspace: Workspace
    folder: tempfile.TemporaryDirectory[str]
    models: list[Model]
    errors: dict[str, str]
    used_s: float = field(default_factory=time.monotonic)

    def close(self) -> None:
        self.workspace.close()
        self.folder.cleanup()

    def export(self, keys: Sequence[str] | None) -> bytes:
        path = Path(self.folder.name) / "results.jsonl"
        exported_keys = None if keys is None else [*keys, *ALL_PROBES]
        self.workspace.store.contents.export(
            path, [self.workspace.target.key], package=__version__, keys=exported_keys
        )
        return path.read_bytes()


def greet() -> dict[str, Any]:
    """The version of the package that runs here: another version might measure differently."""
    return {"package": __version__}


def prepare(request: str, options: Options, payloads: Sequence[ModelPayload]) -> Ready:
    """Decompose the models of a request, and keep them until :func:`finish`.

    A request of the same name is finished first. Raises SuiteError for a model that is refused.
    """
    for other, known in list(_requests.items()):
        if time.monotonic() - known.used_s > _IDLE_S:
            finish(other)
    finish(request)
    folder = tempfile.TemporaryDirectory(prefix="bricks-fleet-")
    workspace = Workspace.open(Path(folder.name) / "cache", options)
    made = _Request(workspace, folder, [], {})
    try:
        models = [payload.unpack() for payload in payloads]
        decompose_all(workspace, models)
        for model in models:
            try:
                workspace.plans.decompose(model)
                made.models.append(model)
            except BricksError as exc:
                made.errors[model.name] = str(exc)
        workspace.store.systems.save_target(workspace.target)
        results = made.export(None)
    except BaseException:
        made.close()
        raise
    with _lock:
        _requests[request] = made
    # The target is that of the workspace's creation, and is constant during this request.
    return Ready(workspace.target, made.errors, results)


def measure(request: str, keys: Sequence[str] | None) -> BatchResult:
    """Measure the bricks ``keys`` of a request's models; None leaves the choice to its options.

    Raises FleetError where :func:`prepare` was not called for the request in this process.
    """
    with _lock:
        known = _requests.get(request)
    if known is None:
        raise FleetError("the host has forgotten the models: it was started again meanwhile")
    known.used_s = time.monotonic()
    done = measuring.measure(known.workspace, known.models, only=keys)
    known.used_s = time.monotonic()
    every = {
        key for model in known.models for key in known.workspace.plans.decompose(model).plan.keys
    }
    return BatchResult(
        known.export(sorted(every) if keys is None else keys),
        fingerprint(),
        done.new_bricks,
        done.wall_s,
        **done.sampling_fields,
    )


def finish(request: str) -> None:
    """Forget a request: its models, and its cache."""
    with _lock:
        known = _requests.pop(request, None)
    if known is not None:
        known.close()


def finish_all() -> None:
    """Forget all requests: the host leaves."""
    for request in list(_requests):
        finish(request)
