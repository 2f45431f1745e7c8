"""Sees all calls of a program that reach an operator which really computes, and notes each.

A dispatch mode sees those of the forward pass, of the backward pass (whose calls autograd makes in
C++), and of the optimiser. Must not know how calls are timed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper
from torch.utils._python_dispatch import TorchDispatchMode

from bricks.backends.torch.call_arguments import ArgumentWriter, indifferent, storage_key
from bricks.backends.torch.entry import Program
from bricks.backends.torch.generator_states import (
    GENERATOR,
    SET_STATE,
    Change,
    GeneratorStates,
)
from bricks.backends.torch.held_tensors import held_by, module_tensors, sizes_bytes
from bricks.backends.torch.recomputation import RECOMPUTATION, recomputation_watched
from bricks.backends.torch.recorded_nodes import free_after
from bricks.backends.torch.recorded_values import RecordedValues
from bricks.backends.torch.replay import KERNEL, refuse_foreign, tensors_in
from bricks.backends.torch.saved_states import SavedStates
from bricks.backends.torch.sketching import SketchedValues
from bricks.errors import BackendError
from bricks.graph.model_metadata import note_sketches
from bricks.graph.program import PHASE, Call, ModuleTensors, Origin, State
from bricks.graph.program_phases import FORWARD, INPUTS

# Calls of these namespaces compute nothing.
_IDLE = frozenset({"profiler"})


class CallRecorder(TorchDispatchMode):
    """Records calls while it is active. ``nodes`` are the calls so far.

    With ``sketched``, so are sketches of the values that decide how long calls take.
    """

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code stays compiled under this mode: what it calls is seen all the same."""
        return True

    def __init__(self, program: Program, sketched: SketchedValues | None = None) -> None:
        super().__init__()
        self._sketched = sketched
        self._compiled = program.compiled is not None
        self._training = program.optimizer is not None
        self._entry = program.entry
        self._phase = ""
        self._values = RecordedValues(program.entry)
        self._inputs: list[str] = []
        self._outputs: list[str] = []
        self._gradients: list[str] = []
        self._module: ModuleTensors | None = None
        self.nodes: list[onnx.NodeProto] = []
        self._scalars: dict[str, list[float]] = {}
        self._generator = GeneratorStates()
        self._states = SavedStates()
        held = held_by(program)
        self._sizes_bytes = sizes_bytes(held)
        for role, named in held.items():
            for name, tensor in named.items():
                self._values.hold(tensor, name)
                if role == INPUTS:
                    self._inputs.append(self._name(tensor))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Meanwhile, checkpointed layers and kernels of compiled code are recorded too."""
        with ExitStack() as watches:
            watches.enter_context(recomputation_watched(self._checkpointed, self._calls))
            if self._compiled:
                from bricks.backends.torch.kernels import watched  # it takes long to import

                watches.enter_context(watched(self.kernel))
            yield

    def _calls(self) -> int:
        return len(self.nodes)

    def _checkpointed(self, operator: str, calls: int, reentrant: bool) -> None:
        self._append(Call(RECOMPUTATION, operator, ([calls, reentrant], {})), [], [])

    def mark(self, phase: str) -> None:
        """The calls from now on belong to ``phase``."""
        self._phase = phase

    @property
    def begins(self) -> Mapping[str, torch.Tensor]:
        """The tensors that the step begins with, by name."""
        return self._values.begins

    @property
    def numbers(self) -> Mapping[str, Sequence[float]]:
        """The numbers among the arguments that do not change the work, by name."""
        return self._scalars

    def latest(self, tensor: torch.Tensor) -> str:
        """The value of the graph that a tensor shows; empty if no call made it."""
        return self._values.latest(tensor)

    def finish(self, module: torch.nn.Module | None = None) -> None:
        """The step has ended, and its results are still there: they are outputs of the graph.

        ``module`` is the one whose parameters have gradients now.
        """
        self._release()
        self._outputs = self._values.living()
        if module is None:
            return
        made = {name: self._gradient(p) for name, p in module.named_parameters() if p.requires_grad}
        self._gradients = [value for value in made.values() if value]
        self._module = module_tensors(module, made)

    def _gradient(self, parameter: torch.nn.Parameter) -> str:
        """The value that a parameter's gradient is; empty if the step made none."""
        return "" if parameter.grad is None else self.latest(parameter.grad)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace in _IDLE:
            return func(*args, **kwargs)
        self._release()
        refuse_foreign(func)
        change = self._generator.change()
        if change is not None:
            self._restore(change)
        call = ArgumentWriter(self, func._schema.arguments, str(func), indifferent(func))
        arguments = call.argument(list(args)), call.argument(dict(kwargs), top=True)
        operator = f"{func._opname}.{func._overloadname}".removesuffix(".default")
        if self._sketched is not None:
            node = Call(func.namespace, operator, arguments).node(call.inputs, [])
            self._sketched.read_by(node, dict(zip(call.inputs, call.tensors, strict=True)))
        result = func(*args, **kwargs)
        self._note(func.namespace, operator, call, arguments, result)
        self._generator.drawn(self.nodes[-1])
        return result

    def _restore(self, change: Change) -> None:
        """Record that the step has put the generator into another state."""
        name = self._states.name_of(change.digest)
        if not name and change.known:
            name = self._values.free_name(f"state_{len(self.nodes)}")
            self._values.declare(name, change.state)
            self._states.save(name, change.call)
        elif not name:
            name = self.value(change.state, SET_STATE)
        self._append(Call(GENERATOR, SET_STATE, ([{"t": 0}], {})), [name], [])
        self._states.restore(change.digest, name, self.nodes[-1])

    def kernel(self, key: str, types: Sequence[str], arguments: Sequence[Any]) -> None:
        """Record a call of a compiled kernel, which writes to what is not constant."""
        self._release()
        call = ArgumentWriter(self, (), f"the compiled kernel {key}", False)
        told = call.of_kernel(types, arguments)
        self._note(KERNEL, KERNEL, call, (told, {"key": key}), ())

    def allocated(self, tensor: torch.Tensor) -> None:
        """Record that compiled code has allocated a tensor, which no dispatcher sees."""
        if not self._compiled or tensor in self._values:
            return
        call = ArgumentWriter(self, (), "empty_strided", False)
        facts = {"dtype": {"dtype": str(tensor.dtype).removeprefix("torch.")}}
        shape = [list(tensor.shape), list(tensor.stride())], facts
        self._note("aten", "empty_strided", call, shape, tensor)

    def _note(
        self, namespace: str, operator: str, call: ArgumentWriter, arguments: Any, result: Any
    ) -> None:
        inputs, ports = list(call.inputs), call.ports()
        storages = [storage_key(tensor) for tensor in call.tensors]
        outputs, aliases = [], []
        returned = list(tensors_in(result))
        for tensor in returned:
            if tensor is not None:
                self._refuse_special(tensor, f"{namespace}.{operator}", "makes")
            alias = _position(storages, tensor)
            wrote = alias < 0 or any(tensor is each for each in call.written)
            outputs.append("" if tensor is None else self._made(operator, tensor, wrote))
            aliases.append(alias)
        for tensor in call.written:
            if not any(tensor is each for each in returned):
                outputs.append(self._made(operator, tensor, True))
                aliases.append(_position(storages, tensor))
        if call.scalars:
            name = f"numbers{len(self._scalars)}"
            self._scalars[name] = call.scalars
            inputs.append(name)
        shared = tuple(aliases) if any(a >= 0 for a in aliases) else ()
        made = Call(namespace, operator, arguments, ports, shared)
        self._append(made, inputs, outputs)

    def _made(self, operator: str, tensor: torch.Tensor, wrote: bool) -> str:
        """A new value: a result, or what an argument holds after the call ``wrote`` to it."""
        wanted = f"{operator.partition('.')[0]}_{len(self.nodes)}"
        return self._values.made(tensor, wanted, wrote=wrote)

    def value(self, tensor: torch.Tensor, operator: str) -> str:
        """The name of the value that an argument is."""
        self._refuse_special(tensor, operator, "takes")
        return self._name(tensor)

    def _refuse_special(self, tensor: torch.Tensor, operator: str, does: str) -> None:
        if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
            kind = tensor.device.type if tensor.device.type != "cpu" else str(tensor.layout)
            raise BackendError(
                f"{self._entry}: {operator} {does} a tensor on {kind}, which cannot be replayed:"
                " use dense tensors on the CPU"
            )

    def _name(self, tensor: torch.Tensor) -> str:
        return self._values.shown(tensor) or self._reinterpreted(tensor)

    def _reinterpreted(self, tensor: torch.Tensor) -> str:
        """Record that a tensor shows what no value of its storage shows, by a call that does so."""
        base = self._values.base(tensor)
        shows = [list(tensor.shape), list(tensor.stride()), tensor.storage_offset()]
        output = self._made("as_strided", tensor, False)
        call = Call("aten", "as_strided", ([{"t": 0}, *shows], {}), aliases=(0,))
        self._append(call, [base], [output])
        return output

    def _append(self, call: Call, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        node = call.node(inputs, outputs)
        if self._training and self._phase == FORWARD and any(map(self._values.large, outputs)):
            node.attribute.append(helper.make_attribute("training", 1))
        node.metadata_props.add(key=PHASE, value=self._phase)
        self.nodes.append(node)

    def _release(self) -> None:
        """Note the storages that are gone since the last call."""
        freed = self._values.freed()
        if freed and self.nodes:
            free_after(self.nodes[-1], freed)

    def model(self, origin: Origin | None) -> onnx.ModelProto:
        """The graph: inputs are the program's and those that hold integers, the rest is weights.

        ``origin`` is noted in it, if there is one.
        """
        graph = self._graph()
        domains = sorted({node.domain for node in self.nodes})
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid(d, 1) for d in domains], ir_version=10
        )
        if origin is not None:
            origin.note(model)
        State(self._sizes_bytes, self._gradients).note(model)
        if self._module is not None and self._training:
            self._module.note(model)
        if self._sketched is not None:
            note_sketches(model, self._sketched.unlike_synthetic(model))
        return model

    def _graph(self) -> onnx.GraphProto:
        types = self._values.types
        inputs = [name for name in self._inputs if name in self.begins]
        weights, integers = self._values.weights_and_integers(inputs)
        inputs += integers
        weights += [
            helper.make_tensor(name, TensorProto.DOUBLE, [len(held)], held)
            for name, held in self._scalars.items()
        ]
        outputs = list(dict.fromkeys(self._outputs))
        graph = helper.make_graph(
            self._states.among(self.nodes), "program", [types[n] for n in inputs],
            [types[n] for n in outputs], weights,
        )  # fmt: skip
        kept = {*inputs, *outputs, *self.begins}
        graph.value_info.extend(info for name, info in types.items() if name not in kept)
        return graph


def _position(storages: Sequence[int], tensor: torch.Tensor | None) -> int:
    key = None if tensor is None else storage_key(tensor)
    return storages.index(key) if key in storages else -1
