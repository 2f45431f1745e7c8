"""Trains a program epoch by epoch: loads batches, runs steps, evaluates, writes checkpoints.

A batch is copied into the program's own inputs and targets, so that each step makes the recorded
calls. Loading, steps and evaluations are timed separately. A checkpoint holds parameters, the state
of the optimiser, and the states of random number generators. Must not know when training ends.
"""

from __future__ import annotations

import gc
import hashlib
import json
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bricks.backends.programs import LoadingTimes, TrainedEpoch
from bricks.backends.torch.entry import Program, source_file, users_errors
from bricks.backends.torch.run.training_checks import plain_options
from bricks.errors import BackendError, first_line

# Steps of another instance of the program before anything is timed: the first ones prepare kernels,
# and some optimisers import PyTorch's compiler.
WARM_UP = 3

# Seeds that NumPy takes.
_NUMPY_SEEDS = 1 << 32

# The version of checkpoints.
_FORMAT = 1


class ProgramTraining:
    """A training of the program that ``make`` returns, from ``seed``.

    ``make`` is called once more to warm up, before anything is timed. See
    :class:`bricks.backends.programs.Training`. Raises :class:`BackendError` where the program
    cannot be trained.
    """

    def __init__(self, make: Callable[[], Program], folder: str, seed: int) -> None:
        self._make, self._seed, self._warm = make, seed, False
        self._program = made_with(make, seed)
        refuse_untrainable(self._program)
        self._stepping = _Stepping(self._program)
        self._history: list[TrainedEpoch] = []
        self.identity = _identity(self._program, folder, seed)

    def _warm_up(self) -> None:
        """Run a few steps of another instance of the program, once; random states do not change."""
        if self._warm:
            return
        self._warm = True
        state = _random_state(self._program)
        stepping = _Stepping(made_with(self._make, self._seed))
        for _ in range(WARM_UP):
            if not stepping.load_batch()[0]:
                stepping.begin()
                stepping.load_batch()
            stepping.run()
        stepping.evaluate()
        del stepping
        gc.collect()
        _set_random_state(self._program, state)

    @property
    def history(self) -> Sequence[TrainedEpoch]:
        """The epochs so far."""
        return tuple(self._history)

    def epoch(self, on_step: Callable[[int], None]) -> TrainedEpoch:
        """Train for one epoch and evaluate; see :class:`~bricks.backends.programs.Training`."""
        self._warm_up()
        stepping, losses = self._stepping, list[float]()
        step_s, loading_s = list[float](), list[float]()
        begin_s = stepping.begin()
        while True:
            on_step(len(losses))
            loaded, taken_s = stepping.load_batch()
            if not loaded:
                begin_s += taken_s
                break
            loading_s.append(taken_s)
            started = time.perf_counter()
            loss = stepping.run()
            step_s.append(time.perf_counter() - started)
            losses.append(float(loss.detach()))
            if not math.isfinite(losses[-1]):
                raise BackendError(
                    f"{self._program.entry}: its loss is {losses[-1]} in step {len(losses)} of"
                    f" epoch {len(self._history) + 1}: lower the learning rate"
                )
        accuracy, evaluation_s = stepping.evaluate()
        epoch = TrainedEpoch(
            tuple(losses), tuple(step_s), tuple(loading_s), begin_s, accuracy, evaluation_s
        )
        self._history.append(epoch)
        return epoch

    def time_loading(self, batches: int, read_bytes: int) -> LoadingTimes:
        """Load batches without steps; see :class:`~bricks.backends.programs.Training`."""
        self._warm_up()
        memory = _memory(read_bytes)
        begin_s, batch_s, stepping = list[float](), list[float](), self._stepping
        while len(batch_s) < batches:
            begin_s.append(stepping.begin())
            while True:
                memory.sum()
                loaded, taken_s = stepping.load_batch()
                if not loaded:
                    begin_s[-1] += taken_s
                    break
                batch_s.append(taken_s)
        workers = getattr(self._program.data, "num_workers", 0)
        return LoadingTimes(
            tuple(begin_s), tuple(batch_s), workers if isinstance(workers, int) else 0
        )

    def time_evaluation(self, repeats: int, read_bytes: int) -> Sequence[float]:
        """Evaluate without training; see :class:`~bricks.backends.programs.Training`."""
        self._warm_up()
        memory = _memory(read_bytes)
        times_s = []
        for _ in range(repeats):
            memory.sum()
            times_s.append(self._stepping.evaluate()[1])
        return times_s

    def save(self, path: Path) -> None:
        """Write one file of tensors and plain values, atomically."""
        program = self._program
        assert program.optimizer is not None
        data: Any = program.data  # some can be continued
        state = {
            "format": _FORMAT,
            "identity": self.identity,
            "module": program.module.state_dict(),
            "optimizer": program.optimizer.state_dict(),
            "random": _random_state(program),
            "data": data.state_dict() if hasattr(data, "state_dict") else None,
            "history": json.dumps([asdict(epoch) for epoch in self._history]),
        }
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with open(partial, "wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except OSError as exc:
            partial.unlink(missing_ok=True)
            raise BackendError(
                f"the checkpoint {path} cannot be written ({exc.strerror}): give another --folder"
            ) from exc

    def load(self, path: Path) -> None:
        """Read the file of :meth:`save`: only tensors and plain values, no code."""
        program = self._program
        assert program.optimizer is not None
        try:
            state: Any = torch.load(path, weights_only=True)
            if state["format"] != _FORMAT or state["identity"] != self.identity:
                raise BackendError(f"the checkpoint {path} is of another program: remove it")
            program.module.load_state_dict(state["module"])
            program.optimizer.load_state_dict(state["optimizer"])
            _set_random_state(program, state["random"])
            if state["data"] is not None:
                data: Any = program.data
                data.load_state_dict(state["data"])
            self._history = list(map(TrainedEpoch.from_json, json.loads(state["history"])))
        except BackendError:
            raise
        except Exception as exc:  # a damaged file may raise anything
            raise BackendError(
                f"the checkpoint {path} cannot be read ({first_line(exc, 100)}): remove it"
            ) from exc


def _memory(size_bytes: int) -> torch.Tensor:
    return torch.ones(size_bytes // 4)


class _Stepping:
    """Loads the batches of a program in order, and runs its steps."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._buffers = (*program.inputs, *program.targets)
        self._batches: Iterator[Any] = iter(())
        self._epoch = self._number = 0

    def begin(self) -> float:
        """Begin an epoch; return the seconds that it takes."""
        data = self._program.data
        assert data is not None
        self._epoch, self._number = self._epoch + 1, 0
        started = time.perf_counter()
        with users_errors(self._program.entry):
            self._batches = iter(data)
        return time.perf_counter() - started

    def load_batch(self) -> tuple[bool, float]:
        """Copy the next batch, if the epoch has one; return whether it has, and the seconds."""
        started = time.perf_counter()
        with users_errors(self._program.entry):
            batch = next(self._batches, None)
        if batch is not None:
            self._number += 1
            copy_batch(self._program, batch, self._number, self._buffers)
        elif self._epoch and not self._number:
            raise BackendError(
                f"{self._program.entry}: its data yield no batch in epoch {self._epoch}: give"
                " an iterable that begins anew, such as torch.utils.data.DataLoader"
            )
        return batch is not None, time.perf_counter() - started

    def run(self) -> torch.Tensor:
        """Run a step; return its loss."""
        with users_errors(self._program.entry):
            loss: torch.Tensor = self._program.step()
        return loss

    def evaluate(self) -> tuple[float, float]:
        """Return the accuracy in evaluation mode, and the seconds of computing it."""
        program = self._program
        assert program.accuracy is not None
        training = [module for module in program.module.modules() if module.training]
        started = time.perf_counter()
        with users_errors(program.entry), torch.no_grad():
            program.module.eval()
            accuracy = float(program.accuracy())
        taken_s = time.perf_counter() - started
        for module in training:
            module.training = True
        if not 0 <= accuracy <= 1:
            raise BackendError(
                f"{program.entry}: its accuracy is {accuracy:g}: return a number from 0 to 1"
            )
        return accuracy, taken_s


def copy_batch(program: Program, batch: Any, number: int, buffers: Sequence[torch.Tensor]) -> None:
    """Copy a batch, the ``number``-th of its epoch, to the program's inputs and targets."""
    if not isinstance(batch, tuple | list) or len(batch) != len(buffers):
        kind = f"{len(batch)} parts" if isinstance(batch, tuple | list) else type(batch).__name__
        raise BackendError(
            f"{program.entry}: its batch {number} is of {kind}: yield tuples of {len(buffers)}"
            f" tensors, {len(program.inputs)} inputs and {len(program.targets)} targets"
        )
    with torch.no_grad():
        for position, (buffer, tensor) in enumerate(zip(buffers, batch, strict=True)):
            if (
                not isinstance(tensor, torch.Tensor)
                or tensor.shape != buffer.shape
                or tensor.dtype != buffer.dtype
            ):
                count = len(program.inputs)
                name = f"input {position}" if position < count else f"target {position - count}"
                content = f"a {type(tensor).__name__}"
                if isinstance(tensor, torch.Tensor):
                    content = f"{tuple(tensor.shape)} of {tensor.dtype}"
                raise BackendError(
                    f"{program.entry}: its batch {number} has {content} for {name}, which is"
                    f" {tuple(buffer.shape)} of {buffer.dtype}: let all batches be alike"
                    " (drop_last=True)"
                )
            buffer.copy_(tensor)


def seed_generators(seed: int) -> None:
    """Seed the random number generators of PyTorch, NumPy and Python."""
    torch.manual_seed(seed)
    np.random.seed(seed % _NUMPY_SEEDS)
    random.seed(seed)


def made_with(make: Callable[[], Program], seed: int) -> Program:
    """Make a program after seeding all generators."""
    seed_generators(seed)
    program = make()
    if torch.initial_seed() != seed:
        raise BackendError(
            f"{program.entry} seeds PyTorch itself, so that every --seeds would be the same: leave"
            " torch.manual_seed out of it"
        )
    return program


def refuse_untrainable(program: Program) -> None:
    """Raise :class:`BackendError` that names the parts which a training lacks."""
    parts = {
        "loss": program.loss, "optimizer": program.optimizer, "data": program.data,
        "accuracy": program.accuracy,
    }  # fmt: skip
    missing = [name for name, part in parts.items() if part is None]
    if missing:
        raise BackendError(
            f"{program.entry} cannot be trained: it gives no {' and no '.join(missing)}"
        )


def _identity(program: Program, folder: str, seed: int) -> str:
    """Return a digest of code, options, seed and initial tensors, which determine a training."""
    assert program.optimizer is not None
    digest = hashlib.sha256()
    source = source_file(program.entry, folder)
    if source is not None and source.is_file():
        digest.update(source.read_bytes())
    options = [plain_options(group) for group in program.optimizer.param_groups]
    facts = [torch.__version__, seed, type(program.optimizer).__name__, options]
    digest.update(json.dumps(facts, sort_keys=True).encode())
    module = program.module
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        plain = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        digest.update(plain.numpy().tobytes())
    return digest.hexdigest()


def _generators(program: Program) -> dict[str, torch.Generator]:
    data: Any = program.data
    inner = getattr(getattr(data, "batch_sampler", None), "sampler", None)
    owners = {"data": data, "sampler": getattr(data, "sampler", None), "inner sampler": inner}
    generators = {name: getattr(owner, "generator", None) for name, owner in owners.items()}
    return {name: g for name, g in generators.items() if isinstance(g, torch.Generator)}


def _random_state(program: Program) -> dict[str, Any]:
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, state, gauss_next = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss,
                  gauss],
        "python": [version, list(state), gauss_next],
        "generators": {n: g.get_state() for n, g in _generators(program).items()},
    }  # fmt: skip


def _set_random_state(program: Program, state: Mapping[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss))
    version, values, gauss_next = state["python"]
    random.setstate((version, tuple(values), gauss_next))
    for name, generator in _generators(program).items():
        generator.set_state(state["generators"][name])
