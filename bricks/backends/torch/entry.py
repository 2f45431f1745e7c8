"""Calls the user's function that makes a program, checks its result, and runs steps of it.

``FILE.py:FUNCTION`` or ``package.module:FUNCTION``. The function gets ``batch=N`` if the user asks
for a batch size, and returns a dict: ``module`` (``torch.nn.Module``), ``inputs`` (a tuple of
tensors), and for a training step ``loss`` (outputs to a scalar tensor) and ``optimizer``
(``torch.optim.Optimizer``). A training until an accuracy also needs ``data`` (an iterable of
batches), ``targets`` (the tensors that the loss reads) and ``accuracy`` (a function). Code of the
user runs only here. Must not know how a step is recorded or timed.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from bricks.backends.torch.device import PROCESSOR, Device
from bricks.backends.users_python import OWN, VARIABLE
from bricks.errors import BackendError, first_line
from bricks.graph.call import BACKWARD, FORWARD, INFERENCE, OPTIMIZER, TRAINING
from bricks.system.accelerator import CPU, CUDA
from bricks.system.environments import ready

# The class of modules that torch.compile returns.
_COMPILED = "OptimizedModule"

_KEYS = {"module", "inputs", "loss", "optimizer", "data", "targets", "accuracy"}


@dataclass(frozen=True, slots=True)
class Program:
    """The checked result of the user's function, which messages call ``entry``.

    ``compiled`` is called in place of the module, if there is one. Each iteration over ``data``
    yields the batches of one epoch: the tensors of ``inputs``, then of ``targets``, which the loss
    reads. ``accuracy`` computes the accuracy of the module on held-out data, from 0 to 1. Steps run
    in the context ``default``, which says where tensors are made that name no device.
    """

    entry: str
    module: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    loss: Callable[[Any], torch.Tensor] | None = None
    optimizer: torch.optim.Optimizer | None = None
    compiled: Callable[..., Any] | None = None
    data: Iterable[Any] | None = None
    targets: tuple[torch.Tensor, ...] = ()
    accuracy: Callable[[], Any] | None = None
    default: Callable[[], AbstractContextManager[object]] = nullcontext

    @property
    def kind(self) -> str:
        """The kind of a step: inference or training."""
        return INFERENCE if self.optimizer is None else TRAINING

    @property
    def called(self) -> Callable[..., Any]:
        """The compiled module if there is one, else the module."""
        return self.module if self.compiled is None else self.compiled

    def step(self, mark: Callable[[str], None] = lambda phase: None) -> Any:
        """Run one step; return its outputs, or the loss of a training step.

        ``mark`` is called with the name of each phase as it begins. Raises exceptions of the user's
        code, and :class:`BackendError` for a loss that is no scalar.
        """
        with self.default():
            mark(FORWARD)
            if self.optimizer is None:
                with torch.no_grad():
                    return self.called(*self.inputs)
            assert self.loss is not None
            with torch.enable_grad():
                self.optimizer.zero_grad(set_to_none=True)
                loss = self.loss(self.called(*self.inputs))
                is_tensor = isinstance(loss, torch.Tensor)
                if not is_tensor or loss.numel() != 1 or not loss.requires_grad:
                    raise BackendError(
                        f"{self.entry}: its loss is {_kind_of(loss)}: return a scalar tensor that"
                        " depends on the module's parameters"
                    )
                mark(BACKWARD)
                loss.backward()
                mark(OPTIMIZER)
                self.optimizer.step()
            return loss


def program(
    entry: str, folder: str, options: Mapping[str, Any], device: Device = PROCESSOR
) -> Program:
    """Call the function that ``entry`` names, check its result, and put it on ``device``.

    A relative file starts from ``folder``. Raises :class:`BackendError` in one line that names the
    mistake; an exception of the user's code is shown as such.
    """
    where, _, name = entry.rpartition(":")
    with users_errors(entry):
        module = _from_file(entry, Path(folder, where)) if where.endswith(".py") else None
        if module is None:
            if folder not in sys.path:
                sys.path.insert(0, folder)
            try:
                module = importlib.import_module(where)
            except ModuleNotFoundError as exc:
                if exc.name is None or not f"{where}.".startswith(f"{exc.name}."):
                    raise
                raise BackendError(
                    f"there is no Python module {where!r} where PyTorch runs: give FILE.py:{name},"
                    " set PYTHONPATH, or name the Python that has it with --python"
                ) from exc
    function: Any = getattr(module, name, None)
    if not callable(function):
        own = [
            each
            for each, value in vars(module).items()
            if inspect.isfunction(value)
            and value.__module__ == module.__name__
            and not each.startswith("_")
        ]
        others = f"only {', '.join(own[:10])}" if own else "and no other"
        raise BackendError(f"{entry}: there is no function {name!r} in it, {others}")
    with users_errors(entry), device.default():
        made = function(**options)
    return _checked(entry, made, device)


@contextmanager
def users_errors(entry: str) -> Iterator[None]:
    """Turn exceptions of the user's code into :class:`BackendError` that shows them as such."""
    try:
        yield
    except (BackendError, MemoryError):
        raise
    except ModuleNotFoundError as exc:
        installed = ready(Path(sys.executable).parent.parent)
        raise BackendError(
            f"{entry} imports {exc.name!r}, which {sys.executable} lacks: name a Python that has it"
            f" with --python, or in {VARIABLE}"
            + ("" if installed else f"; --python {OWN} is the one that bricks installs")
        ) from exc
    except (Exception, SystemExit) as exc:
        if "NestedTensor" in str(exc):
            raise BackendError(
                f"{entry} makes nested tensors, which cannot be recorded: call"
                " torch.backends.mha.set_fastpath_enabled(False) before it, or give"
                " torch.nn.TransformerEncoder enable_nested_tensor=False"
            ) from exc
        raise BackendError(f"{entry} raised {_shown(exc)}") from exc


def _from_file(entry: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise BackendError(
            f"{entry}: there is no file {path.name}: the program is not on this host"
        )
    parent = str(path.resolve().parent)
    if parent not in sys.path:  # it may import modules of its folder
        sys.path.insert(0, parent)
    name = f"bricks_program_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as pickling and dataclasses expect
    spec.loader.exec_module(module)
    return module


def _checked(entry: str, made: Any, device: Device) -> Program:
    if not isinstance(made, dict):
        raise BackendError(
            f"{entry} returned {_kind_of(made)}: return a dict with module and inputs"
        )
    unknown = sorted(map(str, made.keys() - _KEYS))
    if unknown:
        raise BackendError(
            f"{entry} returned a dict with {unknown[0]!r}: give module, inputs, loss and optimizer,"
            " and to train it data, targets and accuracy"
        )
    parts: dict[str, Any] = {name: made.get(name) for name in _KEYS}
    module, loss, optimizer = parts["module"], parts["loss"], parts["optimizer"]
    is_module = isinstance(module, torch.nn.Module)
    _require(is_module, entry, "module is", module, "give a torch.nn.Module")
    if any(type(part).__name__ == _COMPILED for part in module.modules()):
        raise BackendError(
            f"{entry}: its module is compiled already: give it as it is before torch.compile;"
            " --runtime torch-compiled compiles it for a processor, on a GPU only its eager step"
            " is known"
        )
    inputs = _tensors(entry, "inputs", parts["inputs"])
    if (loss is None) != (optimizer is None):
        missing = "loss" if loss is None else "optimizer"
        raise BackendError(
            f"{entry}: a training step needs a loss and an optimizer: give {missing}"
        )
    _require(
        loss is None or callable(loss), entry, "loss is", loss, "give a function of the outputs"
    )
    is_optimizer = optimizer is None or isinstance(optimizer, torch.optim.Optimizer)
    _require(is_optimizer, entry, "optimizer is", optimizer, "give one of torch.optim")
    if optimizer is not None and _needs_closure(optimizer):
        raise BackendError(
            f"{entry}: its optimizer, {type(optimizer).__name__}, calls the model itself, by a"
            " closure, which is not supported: give an optimizer whose step() needs none"
        )
    with users_errors(entry):
        device.move(module)
    inputs = device.moved(inputs)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        _refuse_other_device(entry, f"its {name}", tensor, device)
    for number, tensor in enumerate(inputs):
        _refuse_other_device(entry, f"input {number}", tensor, device)
    targets = device.moved(_tensors(entry, "targets", made.get("targets", ())))
    for number, tensor in enumerate(targets):
        _refuse_other_device(entry, f"target {number}", tensor, device)
    program = Program(entry, module, inputs, loss, optimizer, targets=targets)
    return _with_data(program, parts["data"], parts["accuracy"])


def _with_data(program: Program, data: Any, accuracy: Any) -> Program:
    entry = program.entry
    is_iterable = data is None or isinstance(data, Iterable)
    _require(is_iterable, entry, "data are", data, "give an iterable of batches")
    if isinstance(data, Iterator):
        raise BackendError(
            f"{entry}: its data are {_kind_of(data)}, which ends with the first epoch: give an"
            " iterable that begins anew, such as torch.utils.data.DataLoader"
        )
    is_function = accuracy is None or callable(accuracy)
    _require(is_function, entry, "accuracy is", accuracy, "give a function without arguments")
    return replace(program, data=data, accuracy=accuracy)


def _tensors(entry: str, what: str, value: Any) -> tuple[torch.Tensor, ...]:
    is_tuple = isinstance(value, list | tuple)
    _require(is_tuple, entry, f"{what} are", value, "give a tuple of tensors")
    for number, tensor in enumerate(value):
        if not isinstance(tensor, torch.Tensor):
            raise BackendError(
                f"{entry}: number {number} of its {what} is {_kind_of(tensor)}, and no tensor: give"
                " a tuple of tensors, and let the module make what it needs of them"
            )
    return tuple(value)


def _needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Whether ``step()`` of an optimiser requires a function that computes the loss."""
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def source_file(entry: str, folder: str) -> Path | None:
    """Return the source file of the module that ``entry`` names; None if it has none."""
    where = entry.rpartition(":")[0]
    if where.endswith(".py"):
        return Path(folder, where)
    module = sys.modules.get(where)
    origin = None if module is None else getattr(module, "__file__", None)
    return None if origin is None else Path(origin)


def _refuse_other_device(entry: str, what: str, tensor: torch.Tensor, device: Device) -> None:
    if tensor.device.type != device.kind:
        place = "the CPU" if device.kind == CPU else device.kind
        other = ", or choose --device cuda" if tensor.device.type == CUDA else ""
        raise BackendError(
            f"{entry}: {what} is on device {tensor.device}: keep all data on {place}{other}"
        )


def _require(valid: bool, entry: str, part: str, value: Any, remedy: str) -> None:
    if not valid:
        raise BackendError(f"{entry}: its {part} {_kind_of(value)}: {remedy}")


def _kind_of(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return "None" if value is None else f"of type {type(value).__name__}"


def _shown(exc: BaseException) -> str:
    """Return an exception as Python shows it, with the line of the user's code that raised it."""
    text = f"{type(exc).__name__}: {first_line(exc)}"
    own = [
        frame
        for frame in traceback.extract_tb(exc.__traceback__)
        if f"{os.sep}site-packages{os.sep}" not in frame.filename
        and not frame.filename.startswith((str(Path(__file__).parents[2]), "<"))
        and f"{os.sep}lib{os.sep}python" not in frame.filename
    ]
    return f"{text} ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else text
