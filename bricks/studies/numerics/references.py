"""References of ONNX models: inputs, weights, and values in double precision.

Must not know what is compared with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bricks import backends
from bricks.closing import Closing
from bricks.graph.reference_values import ReferenceValues
from bricks.measure.defaults import GRAPH_TIMEOUT_S
from bricks.measure.graphs import Graphs
from bricks.measure.protocol.evaluation import WriteReference
from bricks.measure.supervisor import Supervisor, WorkerSettings
from bricks.measure.worker.repeated_runs import outputs_in
from bricks.session import whole_models
from bricks.studies.numerics.blocked_layout import BlockedLayout, block_of, blocked, layout_probe
from bricks.studies.numerics.forms import Forms, name_of
from bricks.system import available_memory_bytes
from bricks.units.facts import Missing

if TYPE_CHECKING:
    import numpy as np

    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.studies.numerics.temporary_files import TemporaryFiles

ONNX_REFERENCE = "onnx's reference evaluator in double precision"


@dataclass(frozen=True, slots=True)
class ReferenceFile:
    """A ``file`` with inputs and weights of a model, and its values in double if available.

    ``values`` names the source of the values, or says why there are none.
    """

    file: Path
    own_weights: bool
    values: str | Missing


class References(Closing):
    """Computes references in a worker, from data that ``seed`` decides, into ``files``.

    Use it as a context manager.
    """

    def __init__(self, files: TemporaryFiles, forms: Forms, seed: int) -> None:
        self._files, self._forms = files, forms
        self._opened = ExitStack()
        # Only the worker is needed, and no runtime in it.
        memory_bytes = int(available_memory_bytes() * 0.9)
        settings = WorkerSettings(backends.unneeded(), 1, seed, memory_bytes, timing=False)
        self._graphs = Graphs(self._opened.enter_context(Supervisor(settings)), GRAPH_TIMEOUT_S)
        self._blocks: dict[str, int] = {}

    def close(self) -> None:
        """End the worker."""
        self._opened.close()

    def of(self, model: Model, *, every: bool = False) -> ReferenceFile:
        """The data of an ONNX model, and its outputs in double, or with ``every`` all its values.

        Raises :class:`WorkerError` if nothing can be evaluated with such data.
        """
        file = self._files.new(".npz")
        request = WriteReference(
            model.name, str(model.folder), model.skeleton, str(file), every=every
        )
        written = self._graphs.ask(model, request)
        reason = written.reason
        values = ONNX_REFERENCE if reason is None else Missing(f"no reference: {reason}")
        return ReferenceFile(file, written.own_weights, values)

    def in_blocks(
        self, workspace: Workspace, reference: ReferenceFile, layouts: Mapping[str, BlockedLayout]
    ) -> ReferenceFile:
        """``reference`` with the values in ``layouts`` in the blocked layout of ``workspace``.

        Raises :class:`ModelError` if channels do not fill the runtime's blocks on this host.
        """
        block = self._block(workspace)
        plain = ReferenceValues.load(reference.file)

        def arranged(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {
                name: blocked(array, layouts[name], block) if name in layouts else array
                for name, array in arrays.items()
            }

        file = self._files.new(".npz")
        ReferenceValues(*map(arranged, (plain.inputs, plain.weights, plain.values))).save(file)
        return replace(reference, file=file)

    def _block(self, workspace: Workspace) -> int:
        """The channels in a block of the runtime of ``workspace``, from running a probe."""
        name = name_of(workspace)
        if name not in self._blocks:
            proto, inputs = layout_probe()
            data, outputs = self._files.new(".npz"), self._files.new(".npz")
            ReferenceValues(inputs, {}, {}).save(data)
            model = self._forms.model_of(proto, "the blocked layout")
            whole_models.evaluate(workspace, model, repeats=1, file=str(data), outputs=str(outputs))
            self._blocks[name] = block_of(next(outputs_in(outputs)))
        return self._blocks[name]
