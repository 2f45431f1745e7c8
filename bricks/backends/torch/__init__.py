"""PyTorch on the processor or a GPU (:mod:`bricks.backends.torch.backend`): recorded programs.

    entry.py          the user's function, which makes a program
    record.py         its step as a graph of calls (with recorded_values.py, recomputation.py)
    calls.py          a call: as data and made again (call_data.py, compiled_kernels.py)
    cut.py            bricks of the graph: recipes of their inputs (synthetic_tensors.py)
    run/              calls replayed, steps timed, trained and checked
    device.py         where calls run: the processor, or a GPU
    cuda_calls/       the calls that CUDA makes, from those of the processor
    decoders.py       steps of published decoders as such calls
    trace/            traces of PyTorch's profiler, and the bricks that their calls are
    counterparts/     operators of ONNX in PyTorch (onnx_program.py, operators.py)
    portable_walk.py  all this in portable suites (portable_runtime.py)

Only workers import PyTorch; this module must not.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bricks.backends.offer import BackendInfo, Counterparts, Offer, locked_environment, unimportable
from bricks.backends.portable import Portable
from bricks.backends.programs import DecoderWriter, ProgramTranslator, TranslatedProgram
from bricks.backends.users_python import VARIABLE, UsersPython
from bricks.errors import BackendError
from bricks.graph.form import ModelForm
from bricks.system.accelerator import CPU, Accelerator

if TYPE_CHECKING:
    import onnx

    from bricks.architectures.architecture import Architecture
    from bricks.backends.profiler_trace import TraceFormat
    from bricks.backends.torch.backend import TorchBackend
    from bricks.system.environments import Environment

_COUNTERPARTS = Counterparts(
    operators="bricks.backends.torch.operators",
    model="bricks.backends.torch.onnx_program:onnx_program",
)
_GPU = Path("/dev/nvidia0")

# The version of PyTorch with its build, and that of CUDA, in the file that its build writes.
_BUILD = re.compile(r"^(__version__|cuda)\b[^=]*= *['\"](.*)['\"]", re.MULTILINE)

# The provider of targets whose programs run on a GPU.
CUDA = "CUDA"


def build_of(found: UsersPython) -> tuple[str, str | None]:
    """The version of a PyTorch, such as ``2.11.0+cu130``, and of its CUDA; None without CUDA."""
    facts = {}
    if found.package.module is not None:
        file = Path(found.package.module).with_name("version.py")
        facts = dict(_BUILD.findall(file.read_text("utf-8"))) if file.is_file() else {}
    return facts.get("__version__", found.package.version), facts.get("cuda")


def cxx_compiler() -> str | None:
    """Return the C++ compiler that PyTorch's compiler would use; None if there is none."""
    candidates = os.environ.get("CXX"), "g++", "clang++"
    return next((c for c in candidates if c and shutil.which(c)), None)


@dataclass(frozen=True, kw_only=True)
class TorchOffer(Offer, ProgramTranslator, DecoderWriter, Portable):
    """PyTorch as its lock file pins it, running modules as they are written or ``compiled``."""

    compiled: bool
    device: str = CPU

    runner: ClassVar[str] = "bricks.backends.torch.portable_runtime:TorchRuntime"
    modules: ClassVar[Sequence[str]] = ("bricks.system.nvidia",)
    providers: ClassVar[Sequence[str]] = (CUDA,)

    @property
    def environment(self) -> Environment:
        """Its own environment, which a lock file pins."""
        return locked_environment(__file__, "torch")

    def describe(self) -> BackendInfo:
        """Return the facts of the user's version, or else of the pinned one."""
        if self.compiled and cxx_compiler() is None:
            raise BackendError(
                f"{self.name} needs a C++ compiler, and there is none: install g++ or clang++, or"
                " name one in CXX"
            )
        found = self.users_python()
        if self.device != CPU:  # only a Python of the user has a PyTorch for CUDA
            version, cuda = (None, None) if found is None else build_of(found)
            if found is None or cuda is None:
                has = "there is none" if found is None else f"{found.python} has {version}"
                raise BackendError(
                    f"--device cuda needs a PyTorch built for CUDA, and {has}: name a Python that"
                    f" has one with --python, or in {VARIABLE}"
                )
        elif found is None:
            return replace(self.describe_elsewhere(), python=str(self.environment.required()))
        return self.described_in(found)

    def described_in(self, found: UsersPython) -> BackendInfo:
        """The facts in a Python of the user, whose version decides how long calls from it take."""
        usual = self.environment.python
        return replace(
            super().described_in(found),
            version=build_of(found)[0],
            python_version=None if found.version == usual else found.version,
        )

    def describe_elsewhere(self) -> BackendInfo:
        """Return the facts of the pinned version, which need not be installed."""
        return BackendInfo(
            self.name,
            self.environment.pinned("torch"),
            self.device.upper(),
            timed=True,
            brick_optimization="none",
            bounded_memory=False,  # nothing predicts the memory of a program
        )

    def on(self, device: str) -> TorchOffer:
        """Return PyTorch on the processor or on the first GPU of this host."""
        if device != CPU and self.compiled:
            raise BackendError(
                f"{self.name} compiles for processors alone: choose --runtime torch, whose eager"
                f" steps a GPU runs, or leave out --device {device}"
            )
        placed = replace(self, device=device)
        placed.accelerator()
        return placed

    def accelerator(self) -> Accelerator | None:
        """Return the facts of the GPU that runs programs; an error without one."""
        if self.device == CPU:
            return None
        from bricks.system.nvidia import nvidia_accelerator

        return nvidia_accelerator()

    def create(self, *, threads: int, seed: int, workers: int, optimization: str) -> TorchBackend:
        """Return PyTorch with ``threads`` threads within an operator."""
        # The libraries read these variables when they are loaded.
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
        try:
            from bricks.backends.torch.backend import TorchBackend
        except ImportError as exc:
            raise unimportable(self.environment, exc) from exc

        if self.device == CPU:
            return TorchBackend(self.name, threads=threads, seed=seed, compiled=self.compiled)
        from bricks.backends.torch.device import CudaDevice
        from bricks.backends.torch.gpu_backend import TorchGpuBackend

        return TorchGpuBackend(
            self.name, threads=threads, seed=seed, compiled=self.compiled, device=CudaDevice()
        )

    def piece(self, proto: onnx.ModelProto) -> Mapping[str, Any]:
        """Return a brick as JSON; compiled kernels do not travel."""
        from bricks.backends.torch.cut import piece_of

        return piece_of(proto)

    def calls_on(self, provider: str, proto: onnx.ModelProto) -> TranslatedProgram:
        """Return a program as CUDA runs it; see :mod:`bricks.backends.torch.cuda_calls`."""
        if provider != CUDA:
            raise BackendError(
                f"{self.name} knows the calls of programs on CUDA, not on {provider}"
            )
        from bricks.backends.torch.cuda_calls import translated  # slow import

        return translated(proto)

    def decoder_step(
        self, name: str, of: Architecture, *, batch: int, tokens: int, past: int, cards: int = 1
    ) -> onnx.ModelProto:
        """Return a step in bfloat16 on CUDA; see :mod:`bricks.backends.torch.decoders`."""
        from bricks.backends.torch.decoders import decoder_step  # slow import

        return decoder_step(name, of, batch, tokens, past, cards)

    def for_ranks(self, collectives: str) -> BackendInfo:
        """Refuse NCCL, which needs a GPU and a build of PyTorch for it."""
        if collectives == "nccl" and not _GPU.exists():
            raise BackendError("nccl needs a GPU, and this host has none: choose --backend gloo")
        if collectives == "nccl":
            raise BackendError(
                "nccl needs a build of PyTorch for GPUs, and the one of"
                f" '{self.environment.install}' is for processors: choose --backend gloo"
            )
        return self.describe()

    def trace_format(self) -> TraceFormat | None:
        """Return Kineto's; traces of compiled code do not tell its kernels' arguments."""
        from bricks.backends.torch.trace import Kineto  # slow import

        return None if self.compiled else Kineto()

    def launcher(self, rank: int, ranks: int, address: str, port: int) -> tuple[str, ...]:
        """Return the command of torchrun, one for each rank as if it were a host of its own."""
        return (
            self.describe().python, "-m", "torch.distributed.run",
            f"--nnodes={ranks}", "--nproc-per-node=1", f"--node-rank={rank}",
            f"--master-addr={address}", f"--master-port={port}",
        )  # fmt: skip


OFFER = TorchOffer(
    name="torch",
    summary="PyTorch, programs as they are written, in an environment of its own",
    order=40,
    accepts=ModelForm.PROGRAMS,
    counterparts=_COUNTERPARTS,
    collectives=("gloo", "nccl"),
    default=True,
    compiled=False,
    package="torch",
    oldest="2.4",
)
COMPILED = TorchOffer(
    name="torch-compiled",
    summary="the same, modules compiled by torch.compile",
    order=41,
    accepts=ModelForm.PROGRAMS,
    counterparts=_COUNTERPARTS,
    variant=True,
    compiled=True,
    package="torch",
    oldest="2.4",
)
