"""One step of several ranks as tasks on lanes: one lane for each rank, and one for their network.

A rank is a list of actions: work, a message to hand over, a message to await. The network moves one
transfer at a time, once every rank has handed over its messages. Meanwhile ranks compute more
slowly, since transfers run on their cores, and transfers take longer, since ranks compute. Must not
know the content of messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bricks.compose.composer import compose
from bricks.compose.lanes import Group, Task, Timeline

NETWORK = "network"
_NEARLY_NOTHING = 1e-12


@dataclass(frozen=True, slots=True)
class Compute:
    """Seconds of computation at full speed; ``kind`` is its title."""

    kind: str
    seconds: float


@dataclass(frozen=True, slots=True)
class HandOver:
    """The message of this number is complete at this rank."""

    message: int


@dataclass(frozen=True, slots=True)
class Await:
    """The rank goes on once this message has arrived everywhere."""

    message: int


Action = Compute | HandOver | Await


@dataclass(frozen=True, slots=True)
class NetworkTransfer:
    """Bytes that the network moves by one collective.

    It takes ``alone_s`` seconds while no rank computes, and ``computing_s`` while ranks compute.
    """

    kind: str
    size_bytes: int
    alone_s: float
    computing_s: float


@dataclass(frozen=True, slots=True)
class Fused:
    """Messages that one transfer moves together."""

    messages: tuple[int, ...]
    transfer: NetworkTransfer


class Fusion(Protocol):
    """Decides which messages are moved together, and when; an instance serves one step."""

    def next(self, ready: Sequence[int], now_s: float) -> Fused | float | None:
        """The transfer that begins on the free network.

        ``ready`` are the messages that every rank has handed over and no transfer has moved, in the
        order of becoming ready. Returns a time to be asked again at if no transfer begins earlier,
        or None to be asked when another message is ready.
        """


# A transfer for each message by number, or a fusion that decides during the step.
Transfers = Sequence[NetworkTransfer] | Fusion


def simulate(ranks: Sequence[Sequence[Action]], moved: Transfers, slowdown: float) -> Timeline:
    """Simulate a step; ``ranks`` are the actions of each rank, or once of equal ranks.

    Computation takes ``slowdown`` times as long during a transfer.
    """
    lanes = [rank_lane(number) for number in range(len(ranks))]
    messages = 1 + max((a.message for a in ranks[0] if isinstance(a, HandOver)), default=-1)
    handed: list[dict[int, float]] = [{} for _ in range(messages)]
    tasks = list[Task]()
    for lane, actions in zip(lanes, ranks, strict=True):
        for action in actions:
            if isinstance(action, HandOver):
                handed[action.message][messages + len(tasks)] = 0.0
            tasks.append(_task(action, lane, slowdown))
    if isinstance(moved, Sequence):
        carried = [
            _on_network(transfer, lanes, after)
            for transfer, after in zip(moved, handed, strict=True)
        ]
        return compose([*carried, *tasks])
    waiting = [Task(NETWORK, 0.0, "message", after) for after in handed]
    return compose([*waiting, *tasks], policies={NETWORK: _Fusing(moved, lanes)})


def rank_lane(number: int) -> str:
    """The lane of a rank."""
    return f"rank {number}"


@dataclass(frozen=True, slots=True)
class _Fusing:
    """The policy of a network's lane, whose first tasks are the messages."""

    fusion: Fusion
    lanes: Sequence[str]

    def next(self, ready: Sequence[int], now_s: float) -> Group | float | None:
        choice = self.fusion.next(ready, now_s)
        if not isinstance(choice, Fused):
            return choice
        return Group(choice.messages, _on_network(choice.transfer, self.lanes, {}))


def _task(action: Action, lane: str, slowdown: float) -> Task:
    match action:
        case Compute(kind=kind, seconds=seconds):
            return Task(lane, seconds, kind, slowed={NETWORK: slowdown})
        case HandOver():
            return Task(lane, 0.0, "handing over")
        case Await(message=message):
            return Task(lane, 0.0, "awaiting", {message: 0.0})


def _on_network(of: NetworkTransfer, lanes: Sequence[str], after: dict[int, float]) -> Task:
    # A transfer without isolated seconds is as long as next to computing ranks.
    alone_s = of.alone_s or _NEARLY_NOTHING * of.computing_s
    longer = of.computing_s / alone_s if alone_s else 1.0
    return Task(NETWORK, alone_s, of.kind, after, dict.fromkeys(lanes, longer), of.size_bytes)
