"""Records one step of a program as a graph of ATen calls, after a few warm-up steps.

These are the calls that reach an operator with a kernel. A dispatch mode sees those of the forward
pass, of the backward pass (which autograd makes in C++), and of the optimiser. Must not know how
calls are timed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper
from torch.utils._python_dispatch import TorchDispatchMode

from bricks.backends.torch.call_data import GENERATOR, SET_STATE
from bricks.backends.torch.calls import (
    KERNEL,
    ArgumentWriter,
    indifferent,
    refuse_foreign,
    storage_key,
    tensors_in,
)
from bricks.backends.torch.entry import Program, users_errors
from bricks.backends.torch.recomputation import RECOMPUTATION, recomputation_watched
from bricks.backends.torch.recorded_values import (
    GeneratorStates,
    RecordedValues,
    SketchedValues,
    module_tensors,
    program_tensors,
    sizes_bytes,
)
from bricks.errors import BackendError
from bricks.graph.call import FORWARD, INPUTS
from bricks.graph.model_metadata import note_sketches
from bricks.graph.program import FREED, PHASE, Call, ModuleTensors, Origin, State
from bricks.system.accelerator import CPU, CUDA, DEVICES

# Calls of these namespaces compute nothing.
_IDLE = frozenset({"profiler"})

# Steps before the recorded one: the first makes the optimiser's state.
WARM_UP = 2


class CallRecorder(TorchDispatchMode):
    """Records calls of one step while it is active; ``nodes`` are the calls so far.

    ``begins`` are the tensors with which the step begins, ``numbers`` the scalar arguments of each
    call that do not change its work, both by the name of the value. With ``sketched``, it also
    sketches the values on which the time of calls depends.
    """

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code stays compiled under this mode, which sees its calls all the same."""
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
        self._freed: dict[int, list[str]] = defaultdict(list)  # by the number of the call before
        self.begins: Mapping[str, torch.Tensor] = self._values.begins
        self.numbers: dict[str, list[float]] = {}
        self._generator = GeneratorStates()
        tensors = program_tensors(program)
        self._sizes_bytes = sizes_bytes(tensors)
        self._on_gpu = any(t.device.type == CUDA for of in tensors.values() for t in of.values())
        for role, named in tensors.items():
            for name, tensor in named.items():
                self._values.add_external(tensor, name)
                if role == INPUTS:
                    self._inputs.append(self._name(tensor))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Meanwhile, record checkpointed layers and kernels of compiled code too."""
        with ExitStack() as watches:
            count = self.nodes.__len__
            watches.enter_context(recomputation_watched(self._checkpointed, count))
            if self._compiled:
                from bricks.backends.torch.compiled_kernels import watched  # slow import

                watches.enter_context(watched(self.kernel))
            yield

    def _checkpointed(self, operator: str, calls: int, reentrant: bool) -> None:
        self._append(Call(RECOMPUTATION, operator, ([calls, reentrant], {})), [], [])

    def mark(self, phase: str) -> None:
        """Assign the next calls to ``phase``."""
        self._phase = phase

    def latest(self, tensor: torch.Tensor) -> str:
        """Return the name of the value in a tensor; empty if no call made it."""
        return self._values.latest(tensor)

    def finish(self, module: torch.nn.Module | None = None) -> None:
        """Take the results of the step, which must still live, as outputs of the graph.

        ``module`` is the one whose parameters have gradients now.
        """
        self._note_freed()
        self._outputs = self._values.living()
        if module is None:
            return
        gradients = {
            name: "" if parameter.grad is None else self.latest(parameter.grad)
            for name, parameter in module.named_parameters()
            if parameter.requires_grad
        }
        self._gradients = [value for value in gradients.values() if value]
        self._module = module_tensors(module, gradients)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace in _IDLE:
            return func(*args, **kwargs)
        self._note_freed()
        refuse_foreign(func)
        state = self._generator.changed()
        if state is not None:  # the step has put the generator into another state
            if not state.name:
                tensor = torch.get_rng_state()
                if state.external:
                    state.name = self.value(tensor, SET_STATE)
                else:
                    state.name = self._values.unique_name(f"state_{len(self.nodes)}")
                    self._values.declare(state.name, tensor)
            self._append(Call(GENERATOR, SET_STATE, ([{"t": 0}], {})), [state.name], [])
            state.restored = len(self.nodes) - 1
        call = ArgumentWriter(self, func._schema.arguments, str(func), indifferent(func))
        arguments = call.positional(args), call.named(kwargs)
        operator = f"{func._opname}.{func._overloadname}".removesuffix(".default")
        if self._sketched is not None:
            node = Call(func.namespace, operator, arguments).node(call.inputs, [])
            self._sketched.read_by(node, dict(zip(call.inputs, call.tensors, strict=True)))
        result = func(*args, **kwargs)
        self._note(func.namespace, operator, call, arguments, result)
        self._generator.note_drawn(len(self.nodes) - 1)
        return result

    def kernel(self, key: str, types: Sequence[str], arguments: Sequence[Any]) -> None:
        """Record a call of a compiled kernel, which writes to arguments that are not ``const``."""
        self._note_freed()
        call = ArgumentWriter(self, (), f"the compiled kernel {key}", False)
        positional = call.of_kernel(types, arguments)
        self._note(KERNEL, KERNEL, call, (positional, {"key": key}), ())

    def allocated(self, tensor: torch.Tensor) -> None:
        """Record that compiled code has allocated a tensor, which no dispatcher sees."""
        if not self._compiled or tensor in self._values:
            return
        call = ArgumentWriter(self, (), "empty_strided", False)
        dtype = {"dtype": {"dtype": str(tensor.dtype).removeprefix("torch.")}}
        shape = [list(tensor.shape), list(tensor.stride())], dtype
        self._note("aten", "empty_strided", call, shape, tensor)

    def _note(
        self, namespace: str, operator: str, call: ArgumentWriter, arguments: Any, result: Any
    ) -> None:
        """Append the node of a call: outputs are its results, then other tensors it wrote to."""
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
            name = f"numbers{len(self.numbers)}"
            self.numbers[name] = call.scalars
            inputs.append(name)
        shared = tuple(aliases) if any(a >= 0 for a in aliases) else ()
        on_host = self._on_gpu and bool(call.tensors)
        on_host = on_host and all(tensor.device.type == CPU for tensor in call.tensors)
        made = Call(namespace, operator, arguments, ports, shared, on_host=on_host)
        self._append(made, inputs, outputs)

    def _made(self, operator: str, tensor: torch.Tensor, wrote: bool) -> str:
        stem = f"{operator.partition('.')[0]}_{len(self.nodes)}"
        return self._values.add_result(tensor, stem, wrote=wrote)

    def value(self, tensor: torch.Tensor, operator: str) -> str:
        """Return the name of the value that an argument of ``operator`` is."""
        self._refuse_special(tensor, operator, "takes")
        return self._name(tensor)

    def _refuse_special(self, tensor: torch.Tensor, operator: str, does: str) -> None:
        place = tensor.device.type
        if tensor.layout != torch.strided or place not in DEVICES or tensor.is_quantized:
            layout = str(tensor.layout).removeprefix("torch.")
            if place not in DEVICES:
                what, remedy = f"a tensor on {place}", "use tensors on the CPU"
            elif tensor.is_quantized:
                what, remedy = "a quantised tensor", "use floating-point tensors"
            else:
                what, remedy = f"a tensor of layout {layout}", "use dense ones (sparse=False)"
            raise BackendError(
                f"{self._entry}: {operator} {does} {what}, which cannot be replayed: {remedy}"
            )

    def _name(self, tensor: torch.Tensor) -> str:
        """Return the value in a tensor; record ``as_strided`` for a view that no call has made."""
        name = self._values.name_of(tensor)
        if not name:
            base = self._values.base(tensor)
            view = [list(tensor.shape), list(tensor.stride()), tensor.storage_offset()]
            name = self._made("as_strided", tensor, False)
            call = Call("aten", "as_strided", ([{"t": 0}, *view], {}), aliases=(0,))
            self._append(call, [base], [name])
        return name

    def _append(self, call: Call, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        node = call.node(inputs, outputs)
        if self._training and self._phase == FORWARD and any(map(self._values.large, outputs)):
            node.attribute.append(helper.make_attribute("training", 1))
        node.metadata_props.add(key=PHASE, value=self._phase)
        self.nodes.append(node)

    def _note_freed(self) -> None:
        freed = self._values.freed()
        if self.nodes:
            self._freed[len(self.nodes) - 1] += freed

    def model(self, origin: Origin | None) -> onnx.ModelProto:
        """Build the graph, once: its inputs are the program's and integers, the rest is weights.

        ``origin`` is noted in its metadata, if there is one.
        """
        types = self._values.types
        inputs = [name for name in self._inputs if name in self.begins]
        weights, integers = self._values.weights_and_integers(inputs)
        inputs += integers
        weights += [
            helper.make_tensor(name, TensorProto.DOUBLE, [len(numbers)], numbers)
            for name, numbers in self.numbers.items()
        ]
        outputs = list(dict.fromkeys(self._outputs))
        for state in self._generator.saved:
            self._freed[state.restored].append(state.name)
        for number, names in self._freed.items():
            if names:
                freed = json.dumps(list(dict.fromkeys(names)))
                self.nodes[number].metadata_props.add(key=FREED, value=freed)
        graph = helper.make_graph(
            self._generator.with_saves(self.nodes), "program", [types[n] for n in inputs],
            [types[n] for n in outputs], weights,
        )  # fmt: skip
        own = {*inputs, *outputs, *self.begins}
        graph.value_info.extend(info for name, info in types.items() if name not in own)
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


def _position(storages: Sequence[int], tensor: torch.Tensor | None) -> int:
    key = None if tensor is None else storage_key(tensor)
    return storages.index(key) if key in storages else -1


def record(program: Program, seed: int) -> CallRecorder:
    """Record the calls of one step, after a few warm-up steps.

    Raises :class:`BackendError` if two steps in a row do not make the same calls, and for calls
    that cannot be replayed; both name the call.
    """
    with users_errors(program.entry):
        torch.manual_seed(seed)
        for _ in range(WARM_UP):
            program.step()
        first, again = _recorded(program), _recorded(program)
    for number, (a, b) in enumerate(zip(first.nodes, again.nodes, strict=False)):
        if _signature(a) != _signature(b):
            raise BackendError(
                f"{program.entry} keeps state between steps: call {number} was {a.op_type} and is"
                f" {b.op_type} in the next step, or its arguments differ: make every step the same"
            )
    if len(first.nodes) != len(again.nodes):
        raise BackendError(
            f"{program.entry} keeps state between steps: one makes {len(first.nodes)} calls and the"
            f" next {len(again.nodes)}: make every step the same"
        )
    return again


def _recorded(program: Program) -> CallRecorder:
    recorder = CallRecorder(program, SketchedValues())
    with recorder, recorder.watching():
        result = program.step(recorder.mark)
        recorder.finish(program.module)
    del result
    return recorder


def _signature(node: onnx.NodeProto) -> tuple[Any, ...]:
    return node.op_type, node.domain, node.input, node.attribute
