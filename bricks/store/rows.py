"""Rows to frozen data and back.

The only place that knows how systems, targets, bricks, plans and rounds look as columns. A row that
does not decode is an error that names it, never a guess. Rounds are read in the order in which they
were taken; one that is damaged or lost is an error that names its measurement. Must not write.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from bricks.decompose.plan import Brick, Plan
from bricks.errors import CacheDamaged, first_line
from bricks.graph.types import ValueType, type_from_json
from bricks.store.layout import DONE
from bricks.store.records import checked_round, round_of_samples, samples_of, usage_of_plan
from bricks.store.views import CacheView, Row, chunks, listed
from bricks.system.network import NetworkFingerprint
from bricks.system.target import Runtime, System, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from bricks.samples.measurement import Round
    from bricks.store.reading import ModelUsage

# The errors of decoding a text that is not as it was written.
_DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Turn any error of decoding a damaged row into CacheDamaged, which names the row."""
    try:
        yield
    except _DAMAGE as exc:
        raise CacheDamaged(
            f"{what} is damaged in the cache ({type(exc).__name__}: {first_line(exc, 120)}): "
            "run 'bricks cache verify'"
        ) from exc


def checksum(*values: object) -> int:
    """A checksum of column values; SQLite itself keeps none."""
    total = 0
    for value in values:
        raw = bytes(value) if isinstance(value, bytes | memoryview) else repr(value).encode()
        total = zlib.crc32(raw, zlib.crc32(str(len(raw)).encode(), total))
    return total


def checksum_of(row: Any) -> int:
    """The checksum that a brick, a plan or a round should have; ``row`` has its columns."""
    if hasattr(row, "samples"):
        state = [] if row.device_state is None else [row.device_state]  # none before version 7
        return checksum(row.samples, row.host, row.waited_share, *state)
    if hasattr(row, "plan"):
        return checksum(row.plan, row.wall_s)
    types = (row.inputs, row.weights, row.outputs)
    return checksum(row.key, row.model, *types, row.operators, row.flops, row.examples)


def checksum_matches(row: Row) -> bool:
    """Whether a row has the checksum of its columns; true without a checksum."""
    return row.checksum is None or row.checksum == checksum_of(row)


def _checked(row: Row) -> None:
    if not checksum_matches(row):
        raise ValueError("it is not as it was written")


def _with_checksum(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "checksum": checksum_of(SimpleNamespace(**row))}


def to_text(data: object) -> str:
    """Compact JSON; refuses NaN and infinities, which are no JSON."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


# The columns of a system.
SYSTEM_COLUMNS = ("name", "identity", "recorded", "given_name", "price_per_hour")

# The statement for all targets, each with the columns of its system.
TARGETS = (
    f"SELECT targets.key, targets.runtime, {', '.join(map('systems.{}'.format, SYSTEM_COLUMNS))}"
    " FROM targets JOIN systems ON systems.key = targets.system_key"
)


def fingerprint_row(of: System | NetworkFingerprint) -> dict[str, Any]:
    """The columns of a system, or of a network."""
    return {
        "key": of.key,
        "name": of.name,
        "identity": to_text(of.identity),
        "recorded": to_text(of.recorded),
    }


def system_of(row: Row) -> System:
    """The system in :data:`SYSTEM_COLUMNS`, under its user-given name if there is one."""
    name, price = row.given_name or row.name, row.price_per_hour
    if price is not None and not (math.isfinite(price) and price >= 0):
        raise ValueError(f"its price {price!r} is none")
    return System(name, _mapping(row.identity), _mapping(row.recorded), price)


def network_of(row: Row) -> NetworkFingerprint:
    """The network in a row of the table of networks."""
    return NetworkFingerprint(row.name, _mapping(row.identity), _mapping(row.recorded))


def target_row(target: Target) -> dict[str, Any]:
    """The columns of a target."""
    return {
        "key": target.key,
        "system_key": target.system.key,
        "runtime": to_text(target.runtime.to_json()),
    }


def target_of(row: Row) -> Target:
    """The target in a system's columns and ``runtime``."""
    return Target(system_of(row), Runtime(**_mapping(row.runtime)))


def brick_row(brick: Brick) -> dict[str, Any]:
    """The columns of a brick."""
    row = {
        "key": brick.key,
        "model": brick.model,
        "inputs": _types_text(brick.inputs),
        "weights": _types_text(brick.weights),
        "outputs": _types_text(brick.outputs),
        "operators": to_text(brick.operators),
        "flops": brick.flops,
        "examples": to_text({name: list(values) for name, values in brick.examples.items()}),
        "weight_bytes": weight_bytes_of(brick),
    }
    return _with_checksum(row)


def brick_of(row: Row, *, check: bool = True) -> Brick:
    """The brick in a row of the table of bricks; ValueError if its checksum differs."""
    if check:
        _checked(row)
    return Brick(
        key=row.key,
        model=bytes(row.model),
        inputs=_types(row.inputs),
        weights=_types(row.weights),
        outputs=_types(row.outputs),
        operators=_names(row.operators),
        flops=row.flops,
        examples={name: tuple(values) for name, values in _mapping(row.examples).items()},
    )


def weight_bytes_of(brick: Brick) -> int | None:
    """Bytes of the brick's weights, or None where a type has no fixed size."""
    try:
        return brick.weight_bytes
    except KeyError:
        return None


def plan_row(plan: Plan, target_key: str, wall_s: float) -> dict[str, Any]:
    """The columns of a plan."""
    row = {
        "digest": plan.digest,
        "granularity": plan.granularity,
        "target_key": target_key,
        "plan": to_text(plan.to_json()),
        "wall_s": float(wall_s),
    }
    return _with_checksum(row)


def plan_of(row: Row, *, check: bool = True) -> Plan:
    """The plan in a row of the table of plans; ValueError if its checksum differs."""
    if check:
        _checked(row)
    return Plan.from_json(_mapping(row.plan))


def usage_in(row: Row) -> ModelUsage:
    """The name of a plan's model, and its bricks as ``Plan.usage``: faster than the plan."""
    _checked(row)
    return usage_of_plan(_mapping(row.plan))


def round_row(round_: Round) -> dict[str, Any]:
    """The columns of a round; ValueError for impossible numbers."""
    checked = checked_round(round_)
    host, state, waited = checked.host, checked.device_state, checked.waited_share
    row = {
        "samples": to_text(samples_of(checked)), "sample_count": len(checked.host_s),
        "host": None if host is None else to_text(host.to_json()),
        "waited_share": None if waited is None else float(waited),
        "device_state": None if state is None else to_text(state.to_json()),
    }  # fmt: skip
    return _with_checksum(row)


def round_of(row: Row, *, check: bool = True) -> Round:
    """The round in a row of the table of rounds; ValueError for impossible numbers.

    With ``check``, also for a row whose checksum differs.
    """
    if check:
        _checked(row)
    data = json.loads(row.samples)
    if not isinstance(data, list):
        raise ValueError("not a list of samples")
    host = None if row.host is None else json.loads(row.host)
    state = None if row.device_state is None else json.loads(row.device_state)
    return checked_round(round_of_samples(data, host, row.waited_share, state))


def _mapping(text: str) -> dict[str, Any]:
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    return data


def _names(text: str) -> tuple[str, ...]:
    data = json.loads(text)
    if not isinstance(data, list) or not all(isinstance(name, str) for name in data):
        raise ValueError("not a JSON list of names")
    return tuple(data)


def _types_text(types: Mapping[str, ValueType]) -> str:
    return to_text([[name, kind.to_json()] for name, kind in types.items()])


def _types(text: str) -> dict[str, ValueType]:
    return {name: type_from_json(kind) for name, kind in json.loads(text)}


def rounds_of(view: CacheView, rows: Sequence[Row]) -> dict[int, tuple[Round, ...]]:
    """The rounds of each measurement by its row number, in the order in which they were taken.

    Raises CacheDamaged for a round that is damaged, or lost.
    """
    by_id = {row.id: row for row in rows}
    by_measurement = rounds_by_id(
        view, by_id, lambda row: f"the measurement of {by_id[row.measurement_id].brick_key}"
    )
    for number, row in by_id.items():
        count = len(by_measurement.get(number, ()))
        if count != row.round_count or (row.state == DONE and not count):
            raise rounds_lost(row, count)
    return {number: tuple(of_measurement) for number, of_measurement in by_measurement.items()}


def rounds_lost(row: Row, count: int) -> CacheDamaged:
    """The error that says of a measurement that only ``count`` rounds can be found."""
    return CacheDamaged(
        f"the measurement of {row.brick_key} is damaged in the cache ({count} of its "
        f"{row.round_count} rounds can be found): run 'bricks cache verify'"
    )


def _by_number(row: Row) -> str:
    return f"round {row.number} of measurement {row.measurement_id}"


def rounds_by_id(
    view: CacheView, ids: Collection[int], name: Callable[[Row], str] = _by_number
) -> dict[int, list[Round]]:
    """The rounds of each measurement by its row number, in the order in which they were taken.

    Raises CacheDamaged for a round that is damaged, which it calls by ``name``.
    """
    by_measurement: dict[int, list[Round]] = {}
    for chunk in chunks(ids):
        these, values = listed(chunk)
        statement = f"SELECT * FROM rounds WHERE measurement_id IN {these}"
        for row in view.rows(f"{statement} ORDER BY measurement_id, number", values):
            with decoding(name(row)):
                by_measurement.setdefault(row.measurement_id, []).append(round_of(row))
    return by_measurement
