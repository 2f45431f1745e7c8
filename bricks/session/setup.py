"""The setup of a workspace: its options, checked, and the target that they describe on a host.

Here so that every part of a workspace gets the same valid settings. Must not know how they are
used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bricks import backends
from bricks.decompose.granularity import Granularity
from bricks.session.options import Options, conditions_of, described, effort_of, runtime_of
from bricks.system import System, Target, available_memory_bytes
from bricks.system.allocator import KEPT

if TYPE_CHECKING:
    from bricks.backends import BackendInfo
    from bricks.measure.conditions import Conditions
    from bricks.measure.supervisor import WorkerSettings
    from bricks.predict.effort import Effort

# The share of the available memory that a worker may take, unless the options say otherwise.
_MEMORY_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Setup:
    """Checked ``options``; ``info`` describes their runtime, ``target`` is that on one system."""

    options: Options
    info: BackendInfo
    granularity: Granularity
    effort: Effort
    target: Target
    conditions: Conditions

    @classmethod
    def of(cls, options: Options, system: System) -> Setup:
        """The setup of ``options`` on ``system``; :class:`UsageError` for invalid options."""
        granularity = Granularity.parse(options.granularity)
        effort = effort_of(options)
        info = described(options)
        target = Target(_on_device(options, system), runtime_of(options, info))
        return cls(options, info, granularity, effort, target, conditions_of(options, info, target))

    def named(self, system: System) -> Setup:
        """This setup with ``system``, the same system under its name in a cache."""
        return replace(self, target=replace(self.target, system=system))

    @property
    def memory_bytes(self) -> int:
        """The most memory in bytes that a worker may take for its data."""
        return self.options.memory_bytes or int(available_memory_bytes() * _MEMORY_SHARE)

    @property
    def worker_settings(self) -> WorkerSettings:
        """The settings of workers that run bricks and models of the target's runtime."""
        from bricks.measure.supervisor import Freed, WorkerSettings

        runtime = self.target.runtime
        return WorkerSettings(
            self.info.name,
            runtime.threads,
            self.options.seed,
            self.memory_bytes,
            workers=self.options.workers,
            optimization=self.options.optimization,
            freed=Freed.KEPT if runtime.allocator == KEPT else None,
            python=self.info.python,
            device=self.options.device,
            repeat_inputs=self.options.repeat_inputs,
        )


def _on_device(options: Options, host: System) -> System:
    """``host`` with the accelerator that runs models, if the options name one."""
    accelerator = backends.on_device(options.runtime, options.device).accelerator()
    return host if accelerator is None else host.with_accelerator(accelerator)
