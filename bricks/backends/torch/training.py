"""Trains a program epoch by epoch: takes batches, runs steps, evaluates, keeps what it needs.

A batch is copied into the program's own inputs and targets, so that each step makes the calls that
were recorded. Loading, steps and evaluations are timed apart. What the next epoch depends on is
saved at the end of an epoch: parameters, the optimiser's state, and the states of generators of
random numbers. Must not know until when it is trained.
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
from bricks.backends.torch.trajectories import plain_options
from bricks.errors import BackendError, first_line

# Steps of another instance of the program before anything is timed: the first ones make kernels
# ready, and some optimisers import PyTorch's compiler.
WARM_UP = 3

# Seeds that NumPy takes.
_NUMPY_SEEDS = 1 << 32

# The version of what is saved.
_FORMAT = 1


def _unannounced(number: int) -> None:
    """Nobody asks which step comes next."""


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
        """Run a few steps of another instance of the program, and drop it; nothing else changes."""
        if self._warm:
            return
        self._warm = True
        state = _random_state(self._program)
        stepping = _Stepping(made_with(self._make, self._seed))
        for _ in range(WARM_UP):
            if not stepping.load_batch():
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

    def epoch(self, on_step: Callable[[int], None] = _unannounced) -> TrainedEpoch:
        """One epoch and its evaluation; see the interface."""
        self._warm_up()
        stepping, losses = self._stepping, list[float]()
        step_s, loading_s = list[float](), list[float]()
        begin_s = stepping.begin()
        while True:
            on_step(len(losses))
            started = time.perf_counter()
            loaded = stepping.load_batch()
            taken_s = time.perf_counter() - started
            if not loaded:
                begin_s += taken_s
                break
            loading_s.append(taken_s)
            started = time.perf_counter()
            loss = stepping.run()
            step_s.append(time.perf_counter() - started)
            losses.append(self._finite(loss, len(losses)))
        accuracy, evaluation_s = stepping.evaluate()
        done = TrainedEpoch(
            tuple(losses), tuple(step_s), tuple(loading_s), begin_s, accuracy, evaluation_s
        )
        self._history.append(done)
        return done

    def _finite(self, loss: torch.Tensor, number: int) -> float:
        found = float(loss.detach())
        if not math.isfinite(found):
            raise BackendError(
                f"{self._program.entry}: its loss is {found} in step {number + 1} of epoch"
                f" {len(self._history) + 1}: lower the learning rate"
            )
        return found

    def time_loading(self, batches: int, read_bytes: int) -> LoadingTimes:
        """Batches without steps; see the interface."""
        self._warm_up()
        memory = _memory(read_bytes)
        begin_s, batch_s, stepping = list[float](), list[float](), self._stepping
        while len(batch_s) < batches:
            begin_s.append(stepping.begin())
            while True:
                memory.sum()
                started = time.perf_counter()
                loaded = stepping.load_batch()
                taken_s = time.perf_counter() - started
                if not loaded:
                    begin_s[-1] += taken_s
                    break
                batch_s.append(taken_s)
        workers = getattr(self._program.data, "num_workers", 0)
        return LoadingTimes(
            tuple(begin_s), tuple(batch_s), workers if isinstance(workers, int) else 0
        )

    def time_evaluation(self, repeats: int, read_bytes: int) -> Sequence[float]:
        """Evaluations without training between; see the interface."""
        self._warm_up()
        memory = _memory(read_bytes)
        taken_s = []
        for _ in range(repeats):
            memory.sum()
            taken_s.append(self._stepping.evaluate()[1])
        return taken_s

    def save(self, path: Path) -> None:
        """All of it or nothing, in one file of tensors and plain values."""
        program = self._program
        assert program.optimizer is not None
        state = {
            "format": _FORMAT,
            "identity": self.identity,
            "module": program.module.state_dict(),
            "optimizer": program.optimizer.state_dict(),
            "random": _random_state(program),
            "data": _state_of_data(program),
            "history": json.dumps([asdict(each) for each in self._history]),
        }
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with open(beside, "wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except OSError as exc:
            beside.unlink(missing_ok=True)
            raise BackendError(
                f"the checkpoint {path} cannot be written ({exc.strerror}): give another --folder"
            ) from exc

    def load(self, path: Path) -> None:
        """What :meth:`save` wrote; only tensors and plain values are read, no code."""
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
        except Exception as exc:  # whatever a damaged file makes PyTorch raise
            raise BackendError(
                f"the checkpoint {path} cannot be read ({first_line(exc, 100)}): remove it"
            ) from exc


def _memory(size_bytes: int) -> torch.Tensor:
    """So much memory, every page of it written."""
    return torch.ones(size_bytes // 4)


class _Stepping:
    """Takes batches of a program, one after the other, and runs its steps."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._places = (*program.inputs, *program.targets)
        self._batches: Iterator[Any] = iter(())
        self._epoch = self._number = 0

    def begin(self) -> float:
        """Begin an epoch; seconds that it takes."""
        data = self._program.data
        assert data is not None
        self._epoch, self._number = self._epoch + 1, 0
        started = time.perf_counter()
        with users_errors(self._program.entry):
            self._batches = iter(data)
        return time.perf_counter() - started

    def load_batch(self) -> bool:
        """Copy the next batch to its place; False at the end of the epoch."""
        with users_errors(self._program.entry):
            batch = next(self._batches, None)
        if batch is None:
            if self._epoch and not self._number:
                raise BackendError(
                    f"{self._program.entry}: its data yield no batch in epoch {self._epoch}: give"
                    " an iterable that begins anew, such as torch.utils.data.DataLoader"
                )
            return False
        self._number += 1
        copy_batch(self._program, batch, self._number, self._places)
        return True

    def run(self) -> torch.Tensor:
        """A step; its loss."""
        with users_errors(self._program.entry):
            loss: torch.Tensor = self._program.step()
        return loss

    def evaluate(self) -> tuple[float, float]:
        """The accuracy, computed in evaluation mode without gradients, and its seconds."""
        program = self._program
        assert program.accuracy is not None
        training = [each for each in program.module.modules() if each.training]
        started = time.perf_counter()
        with users_errors(program.entry), torch.no_grad():
            program.module.eval()
            found: Any = program.accuracy()
            accuracy = float(found)
        taken_s = time.perf_counter() - started
        for each in training:
            each.training = True
        if not 0 <= accuracy <= 1:
            raise BackendError(
                f"{program.entry}: its accuracy is {accuracy:g}: return a number from 0 to 1"
            )
        return accuracy, taken_s


def copy_batch(program: Program, batch: Any, number: int, places: Sequence[torch.Tensor]) -> None:
    """Copy a batch, the ``number``-th of its epoch, to the program's inputs and targets."""
    if not isinstance(batch, tuple | list) or len(batch) != len(places):
        held = f"{len(batch)} parts" if isinstance(batch, tuple | list) else type(batch).__name__
        raise BackendError(
            f"{program.entry}: its batch {number} is of {held}: yield tuples of {len(places)}"
            f" tensors, {len(program.inputs)} inputs and {len(program.targets)} targets"
        )
    with torch.no_grad():
        for position, (place, tensor) in enumerate(zip(places, batch, strict=True)):
            if (
                not isinstance(tensor, torch.Tensor)
                or tensor.shape != place.shape
                or tensor.dtype != place.dtype
            ):
                raise _unlike(program, number, position, place, tensor)
            place.copy_(tensor)


def _unlike(
    program: Program, number: int, position: int, place: torch.Tensor, tensor: Any
) -> BackendError:
    count = len(program.inputs)
    name = f"input {position}" if position < count else f"target {position - count}"
    found = f"a {type(tensor).__name__}"
    if isinstance(tensor, torch.Tensor):
        found = f"{tuple(tensor.shape)} of {tensor.dtype}"
    return BackendError(
        f"{program.entry}: its batch {number} has {found} for {name}, which is"
        f" {tuple(place.shape)} of {place.dtype}: let all batches be alike (drop_last=True)"
    )


def made_with(make: Callable[[], Program], seed: int) -> Program:
    """The program, made after all generators of random numbers were seeded."""
    torch.manual_seed(seed)
    np.random.seed(seed % _NUMPY_SEEDS)
    random.seed(seed)
    program = make()
    if torch.initial_seed() != seed:
        raise BackendError(
            f"{program.entry} seeds PyTorch itself, so that every --seeds would be the same: leave"
            " torch.manual_seed out of it"
        )
    return program


def refuse_untrainable(program: Program) -> None:
    """:class:`BackendError` that names what the program lacks to be trained."""
    given = {
        "loss": program.loss, "optimizer": program.optimizer, "data": program.data,
        "accuracy": program.accuracy,
    }  # fmt: skip
    missing = [name for name, held in given.items() if held is None]
    if missing:
        raise BackendError(
            f"{program.entry} cannot be trained: it gives no {' and no '.join(missing)}"
        )


def _identity(program: Program, folder: str, seed: int) -> str:
    """A digest of what decides the course of a training, as far as it can be seen at its start."""
    assert program.optimizer is not None
    found = hashlib.sha256()
    source = source_file(program.entry, folder)
    if source is not None and source.is_file():
        found.update(source.read_bytes())
    options = [plain_options(group) for group in program.optimizer.param_groups]
    facts = [torch.__version__, seed, type(program.optimizer).__name__, options]
    found.update(json.dumps(facts, sort_keys=True).encode())
    module = program.module
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        found.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        plain = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        found.update(plain.numpy().tobytes())
    return found.hexdigest()


def _generators(program: Program) -> dict[str, torch.Generator]:
    """Generators of random numbers that the data have of their own."""
    data: Any = program.data
    inner = getattr(getattr(data, "batch_sampler", None), "sampler", None)
    owners = {"data": data, "sampler": getattr(data, "sampler", None), "inner sampler": inner}
    found = {name: getattr(owner, "generator", None) for name, owner in owners.items()}
    return {name: each for name, each in found.items() if isinstance(each, torch.Generator)}


def _random_state(program: Program) -> dict[str, Any]:
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, state, gauss_next = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss,
                  gauss],
        "python": [version, list(state), gauss_next],
        "generators": {n: each.get_state() for n, each in _generators(program).items()},
    }  # fmt: skip


def _set_random_state(program: Program, state: Mapping[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss))
    version, values, gauss_next = state["python"]
    random.setstate((version, tuple(values), gauss_next))
    for name, generator in _generators(program).items():
        generator.set_state(state["generators"][name])


def _state_of_data(program: Program) -> Any:
    """What data that can be continued say of where they are; None for all others."""
    data: Any = program.data
    return data.state_dict() if hasattr(data, "state_dict") else None
