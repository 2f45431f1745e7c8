"""OpenVINO on the processor, in float32 or bfloat16 (:mod:`bricks.backends.openvino.backend`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bricks.backends.offer import BackendInfo, Offer, locked_environment, unimportable
from bricks.backends.openvino.rule import REVISED, RULE
from bricks.errors import BackendError

if TYPE_CHECKING:
    from bricks.backends.openvino.backend import OpenvinoBackend
    from bricks.system.environments import Environment

# The first version that reads weights at addresses in memory.
_OLDEST = "2025.4"

# The instruction sets of processors that compute in bfloat16.
_BFLOAT16 = ("avx512_bf16", "amx_bf16")


@dataclass(frozen=True, kw_only=True)
class OpenvinoOffer(Offer):
    """OpenVINO as its lock file pins it, computing in ``precision``.

    Its own choice of a precision depends on the processor.
    """

    precision: str

    @property
    def environment(self) -> Environment:
        """Its own, which a lock file pins."""
        return locked_environment(__file__, "openvino")

    def describe(self) -> BackendInfo:
        """The version in the user's Python, or else the pinned one."""
        from bricks.system.processor import read_processor  # here: importing it takes a moment

        found, environment = self.users_python(), self.environment
        python = str(environment.required()) if found is None else found.python
        if self.precision == "bf16" and not read_processor().flags.intersection(_BFLOAT16):
            raise BackendError(
                f"{self.name} needs a processor with instructions for bfloat16"
                f" ({' or '.join(_BFLOAT16)}), and this one has none: use {OFFER.name}"
            )
        info = self.describe_elsewhere() if found is None else self.described_in(found)
        return replace(info, python=python)

    def describe_elsewhere(self) -> BackendInfo:
        """The facts of the pinned version, which need not be installed."""
        return BackendInfo(
            self.name,
            self.environment.pinned("openvino"),
            f"CPU {self.precision}",
            timed=True,
            brick_optimization="all",
            bounded_memory=False,  # the memory of compiled models is not known before
            cutting_times=6,
        )

    def create(
        self, *, threads: int, seed: int, workers: int, optimization: str
    ) -> OpenvinoBackend:
        """A backend with so many ``threads``."""
        try:
            from bricks.backends.openvino.backend import OpenvinoBackend
        except ImportError as exc:
            raise unimportable(self.environment, exc) from exc

        return OpenvinoBackend(threads=threads, seed=seed, precision=self.precision)


OFFER = OpenvinoOffer(
    name="openvino",
    summary="OpenVINO in float32, in an environment of its own (bricks backends install)",
    order=20,
    precision="f32",
    package="openvino",
    oldest=_OLDEST,
    rule=RULE,
    revised=REVISED,
)
BFLOAT16 = replace(
    OFFER,
    name="openvino-bf16",
    summary="the same in bfloat16, on processors that have it",
    order=21,
    variant=True,
    narrow=True,
    precision="bf16",
)
