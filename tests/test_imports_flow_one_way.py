import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "bricks"

# What each room may import, besides itself. A dotted name is one module and not its room.
# The key "" is bricks/__init__.py, the public API; "cli" is absent on the right: nobody imports it.
ALLOWED = {
    "errors": set(),
    "environments": {"errors"},
    "graph": {"errors"},
    "system": {"errors"},
    "zoo": {"errors", "environments"},
    "decompose": {"errors", "graph"},
    "backends": {"errors", "environments", "graph", "decompose", "system"},
    "store": {"errors", "graph", "decompose", "system", "measure.measurement"},
    "measure": {"errors", "graph", "decompose", "system", "backends", "store"},
    "estimate": {
        "errors", "graph", "decompose", "system", "store",
        "measure.measurement", "measure.state", "measure.statistics", "measure.probes",
        "measure.profile", "measure.translation",
    },
    "suite": {"errors", "graph", "decompose", "system"},
    "knowledge": {
        "decompose", "store", "zoo", "estimate", "measure.measurement", "measure.state",
        "measure.translation",
    },
    "contrast": {
        "errors", "system", "zoo", "decompose", "store", "estimate", "knowledge", "measure.probes",
    },
    "spending": {"knowledge", "decompose", "estimate", "measure"},
    "options": {"errors", "system", "decompose", "backends", "measure", "estimate"},
    "results": {"system", "estimate", "measure.measurement"},
    "plans": {"errors", "graph", "system", "decompose", "store"},
    "bench": {
        "errors", "graph", "system", "zoo", "decompose", "backends", "store", "measure", "estimate",
        "knowledge", "spending", "options", "plans", "results",
    },
    "survey": {
        "bench", "errors", "graph", "system", "decompose", "estimate",
        "measure.graphs", "measure.probes",
    },
    "insight": {
        "bench", "graph", "decompose", "estimate", "system",
        "measure.measurement", "measure.peaks", "measure.probes",
    },
    "overview": {
        "bench", "insight", "errors", "zoo", "decompose", "estimate", "system",
        "measure.measurement", "measure.statistics",
    },
    "trace": {
        "bench", "errors", "graph", "system", "decompose", "estimate",
        "measure.measurement", "measure.profile",
    },
    "report": {
        "errors", "graph", "decompose", "system", "store", "estimate", "measure.measurement",
        "measure.profile", "overview",
    },
    "": {
        "bench", "contrast", "insight", "overview", "trace", "options", "results", "survey",
        "errors", "graph", "system", "zoo", "decompose", "backends", "store", "measure", "estimate",
        "suite", "report",
    },
    "fleet": {
        "", "bench", "survey", "options", "errors", "graph", "system", "decompose", "store",
        "measure.campaign", "measure.jobs", "measure.measurement", "measure.probes", "suite",
    },
    "cli": {
        "", "fleet", "bench", "contrast", "insight", "overview", "trace", "options", "results",
        "survey", "environments", "errors",
        "graph", "system", "zoo", "decompose", "backends", "store", "measure", "estimate", "suite",
        "report",
    },
}  # fmt: skip
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "core", "manager", "misc"}


def dotted(path: Path) -> str:
    """Name of a module below the package: "" for the package, "graph.model" for a module."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def room_of(module: str) -> str:
    return module.partition(".")[0]


def imported(path: Path) -> set[str]:
    """Modules of the package that a file imports, wherever in the file, without "bricks."."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            origin = node.module or ""
            whole = [f"{origin}.{alias.name}" for alias in node.names]
            # "from bricks.graph import model" imports a module, "… import Model" a name of one.
            modules = [n for n in whole if n.removeprefix("bricks.") in MODULES]
            names = modules if len(modules) == len(whole) else [origin, *modules]
        else:
            continue
        found |= {n.removeprefix("bricks").lstrip(".") for n in names if room_of(n) == "bricks"}
    return found


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_from_rooms_before_it(module: str) -> None:
    room = room_of(module)
    assert room in ALLOWED, f"bricks/{room} has no place in the order of rooms: give it one"
    allowed = ALLOWED[room] | {room}
    for target in imported(MODULES[module]):
        assert target in allowed or room_of(target) in allowed - {""} or target == module, (
            f"bricks.{module} imports bricks.{target}"
        )


def test_the_order_of_rooms_has_no_cycle_but_the_one_of_plain_data() -> None:
    placed: set[str] = set()
    for room, allowed in ALLOWED.items():
        assert {name for name in allowed if "." not in name} <= placed, room
        placed.add(room)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_called_after_what_it_holds(module: str) -> None:
    assert not EMPTY_NAMES & set(module.split("."))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_opens_with_what_it_is_for(module: str) -> None:
    assert ast.get_docstring(ast.parse(MODULES[module].read_text(encoding="utf-8")))
