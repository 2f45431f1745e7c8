"""The raw data of programs that were measured on GPUs: calls, kernels, steps, host.

Files are described in ``results/gpu/README.md``. All times are in seconds here. Must not know what
is estimated from them.
"""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import onnx

from bricks.graph.host_calls import note_host_calls
from bricks.graph.model import Graph
from bricks.graph.view import graph_of
from bricks.units.sample import Kernel

FOLDER = Path(__file__).resolve().parents[1] / "results" / "gpu"
# Each file of measurements, with the files of its programs.
FILES: Mapping[str, tuple[str, ...]] = {
    "h100-walks": ("programs",),
    "h200-walks": ("programs",),
    "h200-turns": ("h200-programs", "programs"),
}

# Displaced bytes of states that are not called by them: again and again, and all of the cache.
_STATES = {"hot": 0, "cold": 256 << 20}
_WALK = "walk"

Run = tuple[Kernel, ...]


@dataclass(frozen=True, slots=True)
class StepKernel:
    """A kernel, copy or set of a real step, with the times of its begin and of its launch."""

    kernel: Kernel
    begin_s: float
    stream: int
    launched_s: float | None


@dataclass(frozen=True, slots=True)
class RawCall:
    """A call of a program in order; equal calls have the same ``unique`` number."""

    unique: int
    operator: str
    phase: str


@dataclass(frozen=True, slots=True)
class Turn:
    """Steps and replays within a second or two.

    Of real steps one by one ``latency_s`` until the device is done, ``host_s`` until the call
    returned, and ``phase_host_s`` of the host by phase. ``pipelined_s`` is a step of several
    without synchronising, ``pipelined_host_s`` its time on the host. ``replay_host_s`` and
    ``replay_s`` are one replay of all calls, on the host and until the device is done;
    ``replay_phase_s`` the sum of its calls on the host by phase; ``tiny_s`` a tiny call.
    """

    latency_s: tuple[float, ...]
    host_s: tuple[float, ...]
    phase_host_s: Mapping[str, float]
    pipelined_s: float
    pipelined_host_s: float
    replay_host_s: float
    replay_s: float
    replay_phase_s: Mapping[str, float]
    tiny_s: float


@dataclass(frozen=True)  # without slots, for the cached graph
class RawProgram:
    """A program on a ``card`` (``h100``), measured in one process; ``session`` is its file.

    ``kernels`` are the runs of each unique call by displaced bytes, None in a walk; ``replayed``
    the kernels of each call in a full replay, ``heated_s`` their seconds right after 0.6 s of
    steps, where that was measured.
    ``step`` are the kernels of a real step in order. ``synchronised_s`` is each call's time on the
    host in a replay that waits every 48 calls, ``issued_s`` that in replays in ``turns``, which do
    not wait. ``graph_s`` are steps as a CUDA graph, one by one; ``graph_pipelined_s`` one of many.
    ``watts`` and ``clock_hz`` are those of the card while steps run.
    """

    card: str
    session: str
    name: str
    kind: str
    proto: onnx.ModelProto = field(repr=False)
    calls: tuple[RawCall, ...] = field(repr=False)
    kernels: Mapping[int, Mapping[int | None, tuple[Run, ...]]] = field(repr=False)
    replayed: tuple[Run, ...] = field(repr=False)
    heated_s: tuple[float, ...] | None = field(repr=False)
    step: tuple[StepKernel, ...] = field(repr=False)
    latency_s: tuple[float, ...] = field(repr=False)
    host_s: tuple[float, ...] = field(repr=False)
    pipelined_s: float
    phase_host_s: Mapping[str, float]
    synchronised_s: tuple[float, ...] = field(repr=False)
    issued_s: tuple[float, ...] = field(repr=False)
    turns: tuple[Turn, ...] = field(repr=False)
    graph_s: tuple[float, ...]
    graph_pipelined_s: float | None
    watts: float | None
    clock_hz: float | None

    @cached_property
    def graph(self) -> Graph:
        """The recorded calls as a graph, one node a call in order."""
        return graph_of(self.proto)

    @property
    def step_device_s(self) -> float:
        """Seconds of all kernels of the real step."""
        return sum(each.kernel.device_s for each in self.step)


@dataclass(frozen=True, slots=True)
class Nulls:
    """Samples of one process: gaps between dependent tiny kernels, launching, synchronising."""

    gap_s: tuple[float, ...]
    null_s: tuple[float, ...]
    launch_to_start_s: tuple[float, ...]
    round_trip_s: tuple[float, ...]
    sync_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SweptCall:
    """A single call of ``family`` with ``sizes`` of random size; kernels hot and cold."""

    family: str
    sizes: tuple[Any, ...]
    dtype: str
    kernels: Mapping[int | None, tuple[Run, ...]]


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """A program compiled by ``torch.compile`` in ``compile_s`` seconds, with the default mode.

    ``latency_s`` and ``host_s`` are steps one by one, until the device is done and until the call
    returned, ``pipelined_s`` is a step of many; ``kernels`` are those of a step in order.
    """

    name: str
    compile_s: float
    latency_s: tuple[float, ...]
    host_s: tuple[float, ...]
    pipelined_s: float
    kernels: Run


@dataclass(frozen=True, slots=True)
class RawFile:
    """All of a file; ``versions`` are of torch, CUDA and cuDNN."""

    session: str
    device: str
    versions: Mapping[str, str]
    nulls: tuple[Nulls, ...]
    programs: tuple[RawProgram, ...]
    sweep: tuple[SweptCall, ...]
    compiled: tuple[CompiledProgram, ...]


@cache
def read(session: str, folder: Path = FOLDER) -> RawFile:
    """Read one of ``FILES``."""
    with gzip.open(folder / f"{session}.json.gz") as file:
        return _Reader(session, json.load(file), protos(FILES[session], folder)).file()


def programs(folder: Path = FOLDER) -> Iterator[RawProgram]:
    """All programs of all files."""
    for session in FILES:
        yield from read(session, folder).programs


def protos(archives: Sequence[str], folder: Path = FOLDER) -> dict[str, onnx.ModelProto]:
    """The programs of archives such as ``programs``, as recorded on CUDA today, by name."""
    protos: dict[str, onnx.ModelProto] = {}
    for archive in archives:
        with tarfile.open(folder / f"{archive}.tar.xz") as tar:
            for member in tar:
                name = Path(member.name).stem
                file = tar.extractfile(member) if member.name.endswith(".onnx") else None
                if file is not None and name not in protos:
                    protos[name] = _as_today(onnx.load_model_from_string(file.read()))
    return protos


def _as_today(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A program whose arguments name no GPU of the host; calls say what runs on the host.

    Zeros in inputs decide the time of calls on processors alone, and are left out.
    """
    for node in proto.graph.node:
        kept = [attribute for attribute in node.attribute if attribute.name != "zeros"]
        del node.attribute[:]
        node.attribute.extend(kept)
        for call in (attribute for attribute in node.attribute if attribute.name == "call"):
            call.s = call.s.replace(b'{"device":"cuda:0"}', b'{"device":"cuda"}')
    note_host_calls(proto)
    return proto


class _Reader:
    """Reads the content of one file; the two kinds of files call the same facts differently."""

    def __init__(
        self, session: str, data: Mapping[str, Any], protos: Mapping[str, onnx.ModelProto]
    ) -> None:
        self._session, self._data, self._protos = session, data, protos
        self._names: list[str] = data["kernel_names"]

    def file(self) -> RawFile:
        data = self._data
        versions = {name: str(data[name]) for name in ("torch", "cuda", "cudnn")}
        return RawFile(
            self._session, data["device"], versions, tuple(map(_nulls, data["nulls"])),
            tuple(self._program(of) for of in data["programs"] if of["name"] in self._protos),
            tuple(self._swept(of) for of in data.get("sweep", ())),
            tuple(self._compiled(of) for of in data.get("compiled", ())),
        )  # fmt: skip

    def _program(self, of: Mapping[str, Any]) -> RawProgram:
        heated = _first(of, "heated_kernels_us", "heated_kernels")
        unique = _first(of, "unique_kernels", "part")
        graph, gpu = of.get("graph") or {}, of.get("gpu") or {}
        clock_mhz = gpu.get("sm_mhz")
        return RawProgram(
            card=self._session.partition("-")[0], session=self._session, name=of["name"],
            kind=of["kind"], proto=self._protos[of["name"]],
            calls=tuple(RawCall(*call) for call in of["calls"]),
            kernels={int(number): self._states(states) for number, states in unique.items()},
            replayed=tuple(map(self._run, of["replay_kernels"])),
            heated_s=None if heated is None else tuple(us * 1e-6 for us in heated),
            step=tuple(map(self._step_kernel, _first(of, "step_kernels", "real_kernels"))),
            latency_s=tuple(_first(of, "latency_s", "lat_s")), host_s=tuple(of["host_s"]),
            pipelined_s=_first(of, "pipelined_s", "pipe_s"), phase_host_s=of["phase_host_s"],
            synchronised_s=tuple(ns * 1e-9 for ns in _first(of, "call_host_ns", "host_ns")),
            issued_s=tuple(ns * 1e-9 for ns in of.get("issue_ns", ())),
            turns=tuple(map(_turn, of.get("turns", ()))),
            graph_s=tuple(graph.get("lat_s", ())), graph_pipelined_s=graph.get("pipe_s"),
            watts=gpu.get("power_w"), clock_hz=clock_mhz and clock_mhz * 1e6,
        )  # fmt: skip

    def _states(self, runs: Mapping[str, Any]) -> dict[int | None, tuple[Run, ...]]:
        return {
            _displaced_bytes(state): tuple(map(self._run, of))
            for state, of in runs.items()
            if state != "real"
        }

    def _run(self, kernels: Sequence[Sequence[Any]]) -> Run:
        return tuple(Kernel(self._names[number], us * 1e-6) for number, us, *_ in kernels)

    def _step_kernel(self, of: Sequence[Any]) -> StepKernel:
        number, us, begin_us, stream, launched_us = of
        launched_s = None if launched_us is None else launched_us * 1e-6
        return StepKernel(
            Kernel(self._names[number], us * 1e-6), begin_us * 1e-6, stream, launched_s
        )

    def _swept(self, of: Mapping[str, Any]) -> SweptCall:
        states = {state: of[state] for state in _STATES if state in of}
        sizes = tuple(of["sizes"])
        return SweptCall(of["family"], sizes, str(of["dtype"]), self._states(states))

    def _compiled(self, of: Mapping[str, Any]) -> CompiledProgram:
        times = tuple(of["lat_s"]), tuple(of["host_s"]), of["pipe_s"]
        return CompiledProgram(of["name"], of["compile_s"], *times, self._run(of["kernels"]))


def _displaced_bytes(state: str) -> int | None:
    if state == _WALK:
        return None
    return _STATES[state] if state in _STATES else int(state.strip("d_")) << 20


def _turn(of: Mapping[str, Any]) -> Turn:
    phases = {phase: ns * 1e-9 for phase, ns in of["replay_phase_ns"].items()}
    return Turn(
        tuple(of["lat_s"]), tuple(of["host_s"]), of["phase_host_s"], of["pipe_s"],
        of["pipe_host_s"], of["replay_host_s"], of["replay_s"], phases, of["tiny_ns"] * 1e-9,
    )  # fmt: skip


def _nulls(of: Mapping[str, Any]) -> Nulls:
    in_us = (of["gap_us"], of["null_us"], of["launch_to_start_us"])
    gap_s, null_s, launch_s = (tuple(us * 1e-6 for us in each) for each in in_us)
    return Nulls(gap_s, null_s, launch_s, tuple(of["round_trip_s"]), tuple(of["sync_s"]))


def _first(of: Mapping[str, Any], *names: str) -> Any:
    return next((of[name] for name in names if name in of), None)
