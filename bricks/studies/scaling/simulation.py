"""One step of several ranks as tasks on lanes: one lane for each rank, and one for their network.

A rank is a list of actions: work, a message that it hands over, a message that it waits for. The
network moves one transfer at a time, once every rank has handed over what is in it. Meanwhile ranks
compute more slowly, since transfers run on their cores, and transfers take longer, since ranks
compute. Must not know what messages are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bricks.compose.composer import compose
from bricks.compose.lanes import Group, Task, Timeline

NETWORK = "network"


@dataclass(frozen=True, slots=True)
class Compute:
    """Seconds that a rank computes if nothing is in its way; ``kind`` is shown."""

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

    It takes ``alone_s`` while no rank computes, and would take ``computing_s`` if one did all the
    time.
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
    """Decides which messages are moved together, and when; it lives as long as one step."""

    def next(self, ready: Sequence[int], now_s: float) -> Fused | float | None:
        """What begins now that the network is free.

        ``ready`` are the messages that every rank has handed over and that were in no transfer yet,
        in the order in which they became so. Returns a time to be asked again at, if nothing begins
        before that, or None if nothing does before there are other messages.
        """


# A transfer for each message, in the order of their numbers, or what decides during the step.
Transfers = Sequence[NetworkTransfer] | Fusion


def simulate(ranks: Sequence[Sequence[Action]], moved: Transfers, slowdown: float) -> Timeline:
    """The step of ranks that do ``ranks``; those that do the same may be given once.

    While something is in the network, what a rank computes takes ``slowdown`` times as long.
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
            _on_network(each, lanes, after) for each, after in zip(moved, handed, strict=True)
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
        found = self.fusion.next(ready, now_s)
        if not isinstance(found, Fused):
            return found
        return Group(found.messages, _on_network(found.transfer, self.lanes, {}))


def _task(action: Action, lane: str, slowdown: float) -> Task:
    match action:
        case Compute(kind=kind, seconds=seconds):
            return Task(lane, seconds, kind, slowed={NETWORK: slowdown})
        case HandOver():
            return Task(lane, 0.0, "handing over")
        case Await(message=message):
            return Task(lane, 0.0, "awaiting", {message: 0.0})


def _on_network(of: NetworkTransfer, lanes: Sequence[str], after: dict[int, float]) -> Task:
    # Seconds of a transfer that takes nothing alone are told by those beside computing ranks.
    alone_s = of.alone_s or _NEARLY_NOTHING * of.computing_s
    longer = of.computing_s / alone_s if alone_s else 1.0
    return Task(NETWORK, alone_s, of.kind, after, dict.fromkeys(lanes, longer), of.size_bytes)


_NEARLY_NOTHING = 1e-12
