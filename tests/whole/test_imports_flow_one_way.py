import ast
from collections.abc import Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from layers import LAYERS, RINGS
from syntax_trees import parsed

PACKAGE = Path(__file__).parents[2] / "bricks"

LAYER = {package: number for number, packages in enumerate(LAYERS) for package in packages}
LOOSE = {"__init__.py", "__main__.py", "_version.py", "closing.py", "errors.py", "py.typed"}
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "core", "manager", "misc"}


def dotted(path: Path) -> str:
    """Name of a module below the package: "" for the package, "graph.model" for a module."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def package_of(module: str) -> str:
    return module.partition(".")[0]


@cache
def imported(path: Path) -> set[str]:
    """Modules of the package that a file imports, wherever in the file, without "bricks."."""
    found = set()
    for node in ast.walk(parsed(path)):
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
        found |= {n.removeprefix("bricks").lstrip(".") for n in names if package_of(n) == "bricks"}
    return found


def test_a_ring_is_named_by_its_own_command_and_report_alone() -> None:
    """So a runtime or a study can be read, added and removed without the others."""

    def within(module: str, ring: str) -> bool:
        return module == ring or module.startswith(f"{ring}.")

    found = {
        ring: {
            module
            for module, path in MODULES.items()
            if not within(module, ring) and any(within(t, ring) for t in imported(path))
        }
        for ring in RINGS
    }
    assert found == RINGS


def test_modules_import_only_from_layers_before_them() -> None:
    upwards = [
        f"bricks.{module} imports bricks.{target}"
        for module, path in MODULES.items()
        for target in imported(path)
        for own, other in [(package_of(module), package_of(target))]
        if other != own and LAYER[other] >= LAYER[own]
    ]
    assert upwards == []


def test_no_study_imports_another() -> None:
    studies = {path.name for path in (PACKAGE / "studies").iterdir() if path.is_dir()}
    across = [
        f"bricks.{module} imports bricks.{target}"
        for module, path in MODULES.items()
        for target in imported(path)
        for own, other in [(study_of(module), study_of(target))]
        if {own, other} <= studies and own != other
    ]
    assert across == []


def study_of(module: str) -> str:
    """The study that a module belongs to, "training" say; "" if to none."""
    return module.split(".")[1] if module.startswith("studies.") else ""


def test_nothing_lies_loose_beside_the_packages() -> None:
    assert {path.name for path in PACKAGE.iterdir() if path.is_file()} <= LOOSE


def test_every_package_has_its_layer_and_every_layer_its_packages() -> None:
    there = {package_of(module) for module in MODULES}
    assert there == set(LAYER)
    assert len(LAYER) == sum(map(len, LAYERS))  # none is in two


def test_modules_are_called_after_what_they_hold() -> None:
    assert [module for module in MODULES if EMPTY_NAMES & set(module.split("."))] == []


def test_modules_open_with_what_they_are_for() -> None:
    assert [m for m, path in MODULES.items() if not ast.get_docstring(parsed(path))] == []


def test_an_import_from_above_would_be_found(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("def f():\n    from bricks.cli import main\n    import bricks.web\n")
    assert imported(file) == {"cli.main", "web"}


def cycle_of(graph: Mapping[str, set[str]]) -> list[str]:
    """Modules of which each imports the next one, the last the first; empty if there are none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as found:
        names: list[str] = found.args[1]
        return names
    return []


def test_no_module_leads_back_to_itself() -> None:
    assert cycle_of({module: imported(path) for module, path in MODULES.items()}) == []


def test_a_circle_would_be_found() -> None:
    assert sorted(set(cycle_of({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}))) == [
        "a",
        "b",
        "c",
    ]
