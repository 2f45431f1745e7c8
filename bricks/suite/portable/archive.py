"""Writes a portable suite: data, the modules of its program, and what starts it.

Must not know any runtime, nor how bricks are chosen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bricks.suite.archive import write
from bricks.suite.portable.bundle import OLDEST, bundled
from bricks.suite.portable.runner.suite_data import CONTENT

FORMAT, VERSION = "bricks-portable", 1

_MAIN = f"""\
import sys

if sys.version_info < {OLDEST}:
    sys.exit("this suite needs Python {OLDEST[0]}.{OLDEST[1]} or later")

from bricks.suite.portable.runner.main import main

sys.exit(main())
"""

_PROGRAM = "bricks.suite.portable.runner.main"


@dataclass(frozen=True, slots=True)
class PortableVariant:
    """What hosts of one provider measure: ``programs`` and ``groups`` of bricks, as JSON."""

    programs: Sequence[Mapping[str, Any]]
    groups: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PortableContent:
    """A suite: ``facts`` for its program, variants by provider, and JSON by key.

    ``records`` are bricks as in results files, ``pieces`` the same as the runtime measures them,
    ``plans`` as in results files by digest. ``code`` are files by path. ``modules`` are those of
    the runtime.
    """

    facts: Mapping[str, Any]
    variants: Mapping[str, PortableVariant]
    records: Mapping[str, Any]
    pieces: Mapping[str, Any]
    plans: Mapping[str, Any]
    modules: Sequence[str]
    code: Mapping[str, bytes] = field(default_factory=dict)


def write_portable(path: Path, content: PortableContent, *, package: str) -> None:
    """Write a suite that Python runs; the same content gives the same bytes."""
    files = bundled([_PROGRAM, *content.modules]) | {"__main__.py": _MAIN.encode()}
    variants = {}
    for provider, variant in content.variants.items():
        names = [f"groups/{provider}/{number}.json" for number in range(len(variant.groups))]
        files |= {n: _json(group) for n, group in zip(names, variant.groups, strict=True)}
        variants[provider] = {
            "programs": variant.programs, "groups": names, "notes": variant.notes,
        }  # fmt: skip
    for folder, data in (
        ("records", content.records), ("pieces", content.pieces), ("plans", content.plans),
    ):  # fmt: skip
        files |= {f"{folder}/{key}.json": _json(data[key]) for key in data}
    files |= {f"code/{name}": source for name, source in content.code.items()}
    form = {"name": FORMAT, "version": VERSION, "package": package}
    files[CONTENT] = _json({"format": form, **content.facts, "variants": variants})
    write(path, {"format": form}, files)


def _json(data: object) -> bytes:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
