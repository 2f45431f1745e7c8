"""`make test` runs a page whose blocks are not those that last passed all tests."""

from __future__ import annotations

import json
from pathlib import Path

import pages
import pytest
import tiers

PAGE = """Some text.

```console
bricks measure squeezenet
```

```text
squeezenet  3 ms
```
"""


def test_a_page_is_slow_while_its_blocks_are_as_they_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, record = tmp_path / "page.md", tmp_path / "record.json"
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "RECORD", record)
    page.write_text(PAGE)
    record.write_text(json.dumps({"page.md": pages.digest(page)}))
    assert pages.slow_unless_changed(page) == pytest.mark.slow
    page.write_text(PAGE.replace("Some", "Other"))
    assert pages.slow_unless_changed(page) == pytest.mark.slow
    for old, new in (("squeezenet\n", "vgg19\n"), ("3 ms", "3 ms  100 %"), ("console", "bash")):
        page.write_text(PAGE.replace(old, new))
        assert pages.slow_unless_changed(page) != pytest.mark.slow, new
    page.write_text(PAGE)
    record.write_text("{}")
    assert pages.slow_unless_changed(page) != pytest.mark.slow


@pytest.mark.skipif(not tiers.quick, reason="all pages run, and are recorded afterwards")
def test_every_page_that_runs_is_recorded() -> None:
    names = {page.relative_to(pages.ROOT).as_posix() for page in pages.RUN}
    assert pages.recorded().keys() == names, "run: make test-all"
    assert {"README.md", "docs/tutorial.md"} < names
