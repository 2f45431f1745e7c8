"""Each mutation of `make mutations` fits the file that it breaks and names tests that are there."""

import re
from collections import Counter
from pathlib import Path

from commands import ROOT
from mutations import read_table

PACKAGES = {path.name for path in (ROOT / "bricks").iterdir() if (path / "__init__.py").is_file()}


def text(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def test_each_applies_to_a_module_that_still_compiles() -> None:
    for mutation in read_table():
        source = text(mutation.file)
        found = mutation.applied(source)
        assert found != source, mutation.law
        compile(found, mutation.file, "exec")


def test_each_names_tests_that_are_there() -> None:
    for mutation in read_table():
        assert mutation.tests, mutation.law
        for name in mutation.tests:
            path, _, function = name.partition("::")
            assert Path(path).name.startswith("test_"), name
            assert not function or re.search(rf"^def {function}\(", text(path), re.MULTILINE), name


def test_every_package_has_laws_that_are_broken() -> None:
    mutations = read_table()
    assert len(mutations) >= 40
    assert max(Counter(mutation.law for mutation in mutations).values()) == 1
    assert {mutation.file.split("/")[1] for mutation in mutations} == PACKAGES
