"""Models quantised to int8 by a runtime's own tool, and kept without their weights.

The tool runs native code on the model, so it does that in a worker. A model is quantised once: the
graph is kept in the user's folder of caches, under the digest of the model that it was made of.
Quantised weights and scales follow from the model's own weights, or from synthetic ones. Must not
know what is done with the models.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bricks import backends
from bricks.backends.quantising import QuantisationMethod, quantisation_method, quantised
from bricks.backends.users_python import OWN
from bricks.errors import ModelError, WorkerError
from bricks.graph.form import ModelForm, form_of
from bricks.graph.model import Model
from bricks.graph.model_metadata import specified_values
from bricks.graph.topology import all_nodes
from bricks.graph.view import graph_of, parse_model
from bricks.measure.protocol.models import QuantiseModel, allowed_s
from bricks.measure.supervisor import Supervisor, WorkerSettings
from bricks.reading.digest import digest
from bricks.reading.read import read_model
from bricks.system import available_memory_bytes

_logger = logging.getLogger(__name__)

# Changes with the data and options that models are quantised with.
_RULE = 1

# How often the tool processes a whole model, and the share of the memory that it may take.
_TIMES, _MEMORY_SHARE = 20, 0.8

# No data of a kept model is on disk.
_NO_FOLDER = Path(os.devnull)


@dataclass(frozen=True, slots=True)
class Quantisation:
    """The quantisation of ``model`` by the tool of a runtime, ``tool`` by name, for ``runtime``."""

    model: Model
    tool: str
    method: QuantisationMethod

    @classmethod
    def of(cls, model: Model, runtime: str) -> Quantisation:
        """The quantisation of ``model`` that ``runtime`` executes best.

        Raises :class:`ModelError` for a model that cannot be quantised, and
        :class:`~bricks.errors.BackendError` if no runtime with a tool is installed.
        """
        proto = parse_model(model.skeleton)
        if form_of(proto) is ModelForm.PROGRAMS:
            raise ModelError(
                f"{model.name} is a PyTorch program, and --quantize takes ONNX models: leave it out"
            )
        tool = backends.quantiser()
        own = runtime == tool or not backends.offer(runtime).computes
        return cls(model, tool, quantisation_method(model.name, all_nodes(proto.graph), own=own))

    @property
    def title(self) -> str:
        """The name of the quantised model."""
        return f"{self.model.name} (int8)"

    @property
    def note(self) -> str:
        """How the model is quantised, in one line."""
        return (
            f"{self.title}: {self.method} quantisation by the tool of {self.tool}; its accuracy was"
            " not measured"
        )

    def quantised(self) -> Model:
        """The quantised model; made now unless it is kept.

        Raises :class:`WorkerError` for a model that the tool cannot quantise.
        """
        started = time.perf_counter()
        kept = self._kept()
        try:
            skeleton = kept.read_bytes()
        except OSError:
            skeleton = self._made().skeleton
            # Whole or not at all; without space or permission it is made again.
            with suppress(OSError):
                kept.parent.mkdir(parents=True, exist_ok=True)
                temporary = kept.with_name(f".{kept.name}.{os.getpid()}")
                temporary.write_bytes(skeleton)
                temporary.replace(kept)
        proto = parse_model(skeleton)
        types = graph_of(proto).types
        inputs = tuple((name, types[name]) for name, _ in self.model.inputs)
        read_s = self.model.read_s + time.perf_counter() - started
        return Model(self.title, _NO_FOLDER, skeleton, inputs, digest(proto), read_s)

    @property
    def is_kept(self) -> bool:
        """Whether the quantised model was made before."""
        return self._kept().is_file()

    def _kept(self) -> Path:
        """The file of the quantised graph, which may not exist."""
        version = backends.describe(self.tool, python=OWN).version
        facts = (self.model.digest, self.tool, version, self.method, str(_RULE))
        name = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]
        caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return Path(caches).expanduser() / "bricks" / "quantised" / f"{name}.onnx"

    def _made(self) -> Model:
        proto = parse_model(self.model.skeleton)
        _logger.info("%s: quantising it", self.model.name)
        types = dict(self.model.inputs)
        # A worker without a runtime writes the quantised model.
        info = backends.describe(backends.unneeded())
        limit_bytes = int(_MEMORY_SHARE * available_memory_bytes())
        settings = WorkerSettings(
            info.name, threads=1, seed=0, timing=False, python=info.python, memory_bytes=limit_bytes
        )
        with tempfile.TemporaryDirectory(prefix="bricks-") as folder:
            path = Path(folder) / "quantised.onnx"
            model, location = self.model, backends.location(self.tool)
            request = QuantiseModel(
                model.skeleton, str(model.folder), self.tool, location, self.method, str(path)
            )
            with Supervisor(settings) as worker:
                try:
                    worker.ask_afresh(request, timeout_s=allowed_s(proto, times=_TIMES))
                except WorkerError as error:
                    raise WorkerError(f"{model.name}: {error}") from error
            made = read_model(path, name=self.title, values=specified_values(proto, types))
        if not quantised(all_nodes(parse_model(made.skeleton).graph)):
            raise ModelError(
                f"{self.model.name}: the tool of {self.tool} quantised nothing of it: its numbers"
                " may be others than 32-bit floats"
            )
        return made
