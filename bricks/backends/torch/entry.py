"""The user's program: a function that makes a module with its inputs, and runs one step of it.

``FILE.py:FUNCTION`` or ``package.module:FUNCTION``. The function gets ``batch=N`` if the user asks
for a batch size, and returns a dict: ``module`` (``torch.nn.Module``), ``inputs`` (a tuple of
tensors), and for a training step ``loss`` (outputs to a scalar tensor) and ``optimizer``
(``torch.optim.Optimizer``). To be trained until an accuracy it also gives ``data`` (an iterable of
batches), ``targets`` (the tensors that the loss reads) and ``accuracy`` (a function). Only here
does code of the user run. Must not know how a step is recorded or timed.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from bricks.errors import BackendError, first_line
from bricks.graph.program_phases import BACKWARD, FORWARD, INFERENCE, OPTIMIZER, TRAINING

# What torch.compile makes of a module.
_COMPILED = "OptimizedModule"

_KEYS = {"module", "inputs", "loss", "optimizer", "data", "targets", "accuracy"}


def _unmarked(phase: str) -> None:
    """Nobody asks which phase runs."""


@dataclass(frozen=True, slots=True)
class Program:
    """What the function returned, checked; ``entry`` names it in messages.

    ``compiled`` is called in place of the module, if it is there. ``data`` yields the batches of
    one epoch each time it is iterated: the tensors of ``inputs``, then those of ``targets``, which
    the loss reads. ``accuracy`` is that of the module on held-out data, from 0 to 1.
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

    @property
    def kind(self) -> str:
        """Whether a step of it is inference or training."""
        return INFERENCE if self.optimizer is None else TRAINING

    def step(self, mark: Callable[[str], None] = _unmarked) -> Any:
        """Run one step; its outputs, or for a training step its loss.

        ``mark`` is called with the name of each phase as it begins. Raises whatever the user's code
        raises, and :class:`BackendError` for a loss that is no scalar.
        """
        mark(FORWARD)
        module = self.module if self.compiled is None else self.compiled
        if self.optimizer is None:
            with torch.no_grad():
                return module(*self.inputs)
        assert self.loss is not None
        with torch.enable_grad():
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.loss(module(*self.inputs))
            if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
                raise BackendError(
                    f"{self.entry}: its loss is {_told(loss)}: return a scalar tensor that depends"
                    " on the module's parameters"
                )
            mark(BACKWARD)
            loss.backward()
            mark(OPTIMIZER)
            self.optimizer.step()
        return loss


def program(entry: str, folder: str, options: Mapping[str, Any]) -> Program:
    """Call the function that ``entry`` names, and check what it returns.

    A relative file starts from ``folder``. Raises :class:`BackendError` with one line that names
    what is wrong; an exception of the user's code is shown as such.
    """
    where, _, name = entry.rpartition(":")
    function = _function(entry, where, name, folder)
    with users_errors(entry):
        made = function(**options)
    return _checked(entry, made)


@contextmanager
def users_errors(entry: str) -> Iterator[None]:
    """Turn exceptions of the user's code into :class:`BackendError` that shows them as such."""
    try:
        yield
    except BackendError:
        raise
    except MemoryError:
        raise
    except (Exception, SystemExit) as exc:
        if "NestedTensor" in str(exc):
            raise BackendError(
                f"{entry} makes nested tensors, which cannot be recorded: call"
                " torch.backends.mha.set_fastpath_enabled(False) before it, or give"
                " torch.nn.TransformerEncoder enable_nested_tensor=False"
            ) from exc
        raise BackendError(f"{entry} raised {_shown(exc)}") from exc


def _function(entry: str, where: str, name: str, folder: str) -> Callable[..., Any]:
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
                    " or set PYTHONPATH"
                ) from exc
    function: Any = getattr(module, name, None)
    if not callable(function):
        own = [
            name
            for name, value in vars(module).items()
            if inspect.isfunction(value)
            and value.__module__ == module.__name__
            and not name.startswith("_")
        ]
        told = f"only {', '.join(own[:10])}" if own else "and no other"
        raise BackendError(f"{entry}: there is no function {name!r} in it, {told}")
    found: Callable[..., Any] = function
    return found


def _from_file(entry: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise BackendError(
            f"{entry}: there is no file {path.name}: the program is not on this host"
        )
    parent = str(path.resolve().parent)
    if parent not in sys.path:  # beside it may lie modules that it imports
        sys.path.insert(0, parent)
    name = f"bricks_program_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as pickling and dataclasses expect
    spec.loader.exec_module(module)
    return module


def _checked(entry: str, made: Any) -> Program:
    if not isinstance(made, dict):
        raise BackendError(f"{entry} returned {_told(made)}: return a dict with module and inputs")
    strange = sorted(map(str, made.keys() - _KEYS))
    if strange:
        raise BackendError(
            f"{entry} returned a dict with {strange[0]!r}: give module, inputs, loss and optimizer,"
            " and to train it data, targets and accuracy"
        )
    module, inputs = made.get("module"), made.get("inputs")
    loss, optimizer = made.get("loss"), made.get("optimizer")
    if not isinstance(module, torch.nn.Module):
        raise BackendError(f"{entry}: its module is {_told(module)}: give a torch.nn.Module")
    if any(type(each).__name__ == _COMPILED for each in module.modules()):
        raise BackendError(
            f"{entry}: its module is compiled already: give it as it is before torch.compile, and"
            " choose --runtime torch-compiled"
        )
    inputs = _tensors(entry, "inputs", inputs)
    if (loss is None) != (optimizer is None):
        missing = "loss" if loss is None else "optimizer"
        raise BackendError(
            f"{entry}: a training step needs a loss and an optimizer: give {missing}"
        )
    if loss is not None and not callable(loss):
        raise BackendError(f"{entry}: its loss is {_told(loss)}: give a function of the outputs")
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise BackendError(f"{entry}: its optimizer is {_told(optimizer)}: give one of torch.optim")
    if optimizer is not None and _needs_closure(optimizer):
        raise BackendError(
            f"{entry}: its optimizer, {type(optimizer).__name__}, calls the model itself, by a"
            " closure, which is not supported: give an optimizer whose step() needs none"
        )
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        _refuse_elsewhere(entry, f"its {name}", tensor)
    for number, tensor in enumerate(inputs):
        _refuse_elsewhere(entry, f"input {number}", tensor)
    found = Program(entry, module, inputs, loss, optimizer)
    return _with_data(found, made.get("data"), made.get("targets", ()), made.get("accuracy"))


def _with_data(program: Program, data: Any, targets: Any, accuracy: Any) -> Program:
    """``program`` with what it is trained on, checked."""
    entry = program.entry
    if data is not None and not isinstance(data, Iterable):
        raise BackendError(f"{entry}: its data are {_told(data)}: give an iterable of batches")
    if isinstance(data, Iterator):
        raise BackendError(
            f"{entry}: its data are {_told(data)}, which ends with the first epoch: give an"
            " iterable that begins anew, such as torch.utils.data.DataLoader"
        )
    if accuracy is not None and not callable(accuracy):
        raise BackendError(
            f"{entry}: its accuracy is {_told(accuracy)}: give a function without arguments"
        )
    targets = _tensors(entry, "targets", targets)
    for number, tensor in enumerate(targets):
        _refuse_elsewhere(entry, f"target {number}", tensor)
    return replace(program, data=data, targets=targets, accuracy=accuracy)


def _tensors(entry: str, what: str, given: Any) -> tuple[torch.Tensor, ...]:
    if isinstance(given, list):
        given = tuple(given)
    if not isinstance(given, tuple):
        raise BackendError(f"{entry}: its {what} are {_told(given)}: give a tuple of tensors")
    for number, each in enumerate(given):
        if not isinstance(each, torch.Tensor):
            raise BackendError(
                f"{entry}: number {number} of its {what} is {_told(each)}, and no tensor: give a"
                " tuple of tensors, and let the module make what it needs of them"
            )
    return given


def _needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Whether each step of an optimiser has to compute the loss itself, several times."""
    found = inspect.signature(type(optimizer).step).parameters.get("closure")
    return found is not None and found.default is inspect.Parameter.empty


def source_file(entry: str, folder: str) -> Path | None:
    """The source file of the module that ``entry`` names; None where Python knows of none."""
    where = entry.rpartition(":")[0]
    if where.endswith(".py"):
        return Path(folder, where)
    module = sys.modules.get(where)
    origin = None if module is None else getattr(module, "__file__", None)
    return None if origin is None else Path(origin)


def _refuse_elsewhere(entry: str, what: str, tensor: torch.Tensor) -> None:
    if tensor.device.type != "cpu":
        raise BackendError(
            f"{entry}: {what} is on device {tensor.device}: keep all data on the CPU"
        )


def _told(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return "None" if value is None else f"of type {type(value).__name__}"


def _shown(exc: BaseException) -> str:
    """The exception as Python shows it, and the place in the user's code that raised it."""
    text = f"{type(exc).__name__}: {first_line(exc)}"
    own = [
        frame
        for frame in traceback.extract_tb(exc.__traceback__)
        if f"{os.sep}site-packages{os.sep}" not in frame.filename
        and not frame.filename.startswith((str(Path(__file__).parents[2]), "<"))
        and f"{os.sep}lib{os.sep}python" not in frame.filename
    ]
    return f"{text} ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else text
