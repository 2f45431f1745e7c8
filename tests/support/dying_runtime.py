"""A runtime for portable suites whose bricks do what their names say, where tests put it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bricks.backends.portable import (
    GroupWalk,
    HostRuntime,
    OutOfMemory,
    PortableRuntime,
    SampledRound,
)
from bricks.units.sample import Sample


class DyingRuntime(PortableRuntime):
    def __init__(self, *, device: str, threads: int | None, content: Mapping[str, Any]) -> None:
        self.device = device

    def facts(self) -> HostRuntime:
        return HostRuntime("1", "none", 1)

    def group(self, group: Mapping[str, Any], pieces: Mapping[str, Any]) -> GroupWalk:
        if "large" in pieces.values():
            raise OutOfMemory("8 GiB are not to be had")
        return DyingWalk([step["key"] for step in group["steps"]], pieces)

    def real_steps(self, program: Mapping[str, Any], folder: str) -> Iterator[SampledRound]:
        raise RuntimeError("its code is wrong")


class DyingWalk(GroupWalk):
    def __init__(self, keys: list[str], pieces: Mapping[str, Any]) -> None:
        self.keys, self.pieces = keys, pieces

    def rehearse(self, begun: Callable[[str], None]) -> Mapping[str, str]:
        for key in self.keys:
            begun(key)
            if self.pieces[key] == "deadly":
                os.kill(os.getpid(), signal.SIGSEGV)
        failed = {key: "it cannot run" for key in self.keys if self.pieces[key] == "wrong"}
        self.keys = [key for key in self.keys if key not in failed]
        return failed

    def rounds(self) -> Iterator[SampledRound]:
        for key in self.keys:
            yield SampledRound(key, [Sample(1e-3), Sample(2e-3)])
