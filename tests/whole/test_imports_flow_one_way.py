import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "bricks"

# From below: what is in one layer imports from layers before it, and from itself alone. "" is
# bricks/__init__.py, the public API, whose names are loaded when they are first used.
LAYERS = (
    {"errors", "_version"},
    {"graph", "system"},
    {"decompose", "zoo"},
    {"backends", "memory", "samples", "suite"},
    {"store", "predict", "network"},
    {"measure", "estimate"},
    {"session"},
    {"analysis", "training"},
    {"operators", "scale", "scenarios"},
    {"report", "fleet"},
    {"web"},
    {""},
    {"cli"},
    {"__main__"},
)
LAYER = {package: number for number, packages in enumerate(LAYERS) for package in packages}
LOOSE = {"__init__.py", "__main__.py", "_version.py", "errors.py", "py.typed"}
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "core", "manager", "misc"}


def dotted(path: Path) -> str:
    """Name of a module below the package: "" for the package, "graph.model" for a module."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def package_of(module: str) -> str:
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
        found |= {n.removeprefix("bricks").lstrip(".") for n in names if package_of(n) == "bricks"}
    return found


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_from_layers_before_it(module: str) -> None:
    package = package_of(module)
    assert package in LAYER, f"bricks/{package} has no place in the order of layers: give it one"
    for target in imported(MODULES[module]):
        other = package_of(target)
        assert other == package or LAYER[other] < LAYER[package], (
            f"bricks.{module} imports bricks.{target}"
        )


def test_nothing_lies_loose_beside_the_packages() -> None:
    assert {path.name for path in PACKAGE.iterdir() if path.is_file()} <= LOOSE


def test_every_package_has_its_layer_and_every_layer_its_packages() -> None:
    there = {package_of(module) for module in MODULES}
    assert there == set(LAYER)
    assert len(LAYER) == sum(map(len, LAYERS))  # none is in two


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_called_after_what_it_holds(module: str) -> None:
    assert not EMPTY_NAMES & set(module.split("."))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_opens_with_what_it_is_for(module: str) -> None:
    assert ast.get_docstring(ast.parse(MODULES[module].read_text(encoding="utf-8")))
