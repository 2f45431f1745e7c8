"""One step of several ranks as events: what each rank does, and what its network does meanwhile.

A rank is a list of actions: work, a message that it hands over, a message that it waits for. The
network moves one transfer at a time, once every rank has handed over what is in it. Meanwhile ranks
compute more slowly, since transfers run on their cores, and transfers take longer, since ranks
compute. Must not know what messages are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Work:
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


Action = Work | HandOver | Await


@dataclass(frozen=True, slots=True)
class Transfer:
    """Messages that are moved together.

    It takes ``alone_s`` while no rank computes, and would take ``computing_s`` if one did all the
    time.
    """

    kind: str
    messages: tuple[int, ...]
    size_bytes: int
    alone_s: float
    computing_s: float


class Order(Protocol):
    """Decides which messages are moved together, and when; it lives as long as one step."""

    def next(self, ready: Sequence[int], now_s: float) -> Transfer | float | None:
        """What begins now that the network is free.

        ``ready`` are the messages that every rank has handed over and that were in no transfer yet,
        in the order in which they became so. Returns a time to be asked again at, if nothing begins
        before that, or None if nothing does before there are other messages.
        """


class InOrder:
    """Messages one by one, in the order of their numbers, each as soon as those before are gone."""

    def __init__(self, transfers: Sequence[Transfer]) -> None:
        self._transfers = transfers
        self._next = 0

    def next(self, ready: Sequence[int], now_s: float) -> Transfer | float | None:
        """See :class:`Order`."""
        if self._next not in ready:
            return None
        self._next += 1
        return self._transfers[self._next - 1]


@dataclass(frozen=True, slots=True)
class Span:
    """What a rank did, or waited for, from when to when; in seconds since the step began."""

    kind: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Moved:
    """A transfer, and when it was in the network."""

    transfer: Transfer
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Simulated:
    """A step: ``ranks`` are the spans of each kind of rank, ``moved`` the transfers in order."""

    step_s: float
    ranks: tuple[tuple[Span, ...], ...]
    moved: tuple[Moved, ...]

    @property
    def moving_s(self) -> float:
        """Seconds in which something was in the network."""
        return sum(each.end_s - each.begin_s for each in self.moved)


WAITING = "waiting"


def simulate(ranks: Sequence[Sequence[Action]], order: Order, slowdown: float) -> Simulated:
    """The step of ranks that do ``ranks``; those that do the same may be given once.

    While something is in the network, what a rank computes takes ``slowdown`` times as long.
    """
    run = _Run([_Rank(list(actions)) for actions in ranks], order, slowdown)
    while run.goes_on():
        pass
    spans = tuple(tuple(rank.spans) for rank in run.ranks)
    return Simulated(run.now_s, spans, tuple(run.moved))


@dataclass(slots=True)
class _Rank:
    actions: list[Action]
    at: int = 0
    left_s: float = 0.0
    since_s: float = 0.0
    spans: list[Span] = field(default_factory=list)

    @property
    def action(self) -> Action | None:
        return self.actions[self.at] if self.at < len(self.actions) else None

    @property
    def works(self) -> bool:
        return isinstance(self.action, Work)

    def ends(self, now_s: float, kind: str) -> None:
        """The current action ends: what it took is noted, if it took anything."""
        if now_s > self.since_s:
            self.spans.append(Span(kind, self.since_s, now_s))
        self.at += 1
        self.since_s = now_s
        action = self.action
        self.left_s = action.seconds if isinstance(action, Work) else 0.0

    def begin(self) -> None:
        action = self.action
        self.left_s = action.seconds if isinstance(action, Work) else 0.0


class _Run:
    """A step that runs; :meth:`goes_on` moves to the next event."""

    def __init__(self, ranks: list[_Rank], order: Order, slowdown: float) -> None:
        self.ranks, self._order, self._slowdown = ranks, order, slowdown
        self.now_s = 0.0
        self.moved: list[Moved] = []
        self._handed: dict[int, int] = {}
        self._ready: list[int] = []
        self._arrived: set[int] = set()
        self._transfer: Transfer | None = None
        self._begun_s = 0.0
        self._left = 0.0  # of the transfer, from 1 to 0
        for rank in ranks:
            rank.begin()

    def goes_on(self) -> bool:
        """Move to the next event; False once all ranks are done."""
        self._settle()
        asked_s = self._begin_transfer()
        if all(rank.action is None for rank in self.ranks):
            return False
        waits = [self._left * self._transfer_s()] if self._transfer is not None else []
        waits += [rank.left_s * self._pace for rank in self.ranks if rank.works]
        if asked_s is not None:
            waits.append(asked_s - self.now_s)
        if not waits:
            raise RuntimeError("every rank waits for a message that another never hands over")
        self._advance(max(0.0, min(waits)))
        return True

    @property
    def _pace(self) -> float:
        """How many times longer work takes now."""
        return 1.0 if self._transfer is None else self._slowdown

    def _transfer_s(self) -> float:
        """Seconds that the whole transfer would take at its present pace."""
        assert self._transfer is not None
        works = any(rank.works for rank in self.ranks)
        return self._transfer.computing_s if works else self._transfer.alone_s

    def _settle(self) -> None:
        """Let ranks do what takes no time."""
        for rank in self.ranks:
            while True:
                match rank.action:
                    case HandOver(message=message):
                        self._handed[message] = self._handed.get(message, 0) + 1
                        if self._handed[message] == len(self.ranks):
                            self._ready.append(message)
                        rank.ends(self.now_s, WAITING)
                    case Await(message=message) if message in self._arrived:
                        rank.ends(self.now_s, WAITING)
                    case Work(kind=kind) if rank.left_s <= 0.0:
                        rank.ends(self.now_s, kind)
                    case _:
                        break

    def _begin_transfer(self) -> float | None:
        """Let the network begin what it may; the time to ask again at, if there is one."""
        if self._transfer is not None:
            return None
        found = self._order.next(self._ready, self.now_s)
        if not isinstance(found, Transfer):
            return found
        self._ready = [message for message in self._ready if message not in found.messages]
        self._transfer, self._begun_s, self._left = found, self.now_s, 1.0
        return None

    def _advance(self, by_s: float) -> None:
        whole_s = self._transfer_s() if self._transfer is not None else 0.0
        pace = self._pace
        ended = self._transfer is not None and self._left * whole_s <= by_s
        for rank in self.ranks:
            if rank.works:
                # The rank whose work was the shortest wait ends it exactly.
                done = rank.left_s * pace <= by_s
                rank.left_s = 0.0 if done else rank.left_s - by_s / pace
        self.now_s += by_s
        if self._transfer is None:
            return
        if not ended:
            self._left -= by_s / whole_s
            return
        self._arrived.update(self._transfer.messages)
        self.moved.append(Moved(self._transfer, self._begun_s, self.now_s))
        self._transfer = None
