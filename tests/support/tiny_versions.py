"""A runtime of another package, version 1.0 installed here, and wheels of other versions.

Its nodes take as many times the fake runtime's latencies as its major version says.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from added_packages import install_offer, make_site

_CODE = """
from importlib import metadata

from bricks.backends.fake import FakeOffer
from bricks.backends.offer import BackendInfo

TIMES = {times}


class TinyOffer(FakeOffer):
    def describe(self):
        return BackendInfo(self.name, metadata.version("tiny_runtime"), "none", timed=False)

    def create(self, **settings):
        from bricks.backends.fake import backend

        latency_s = backend.node_latency_s
        backend.node_latency_s = lambda key: TIMES * latency_s(key)
        return backend.FakeBackend()


OFFER = TinyOffer(name="tiny", package="tiny_runtime")
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, *versions: str) -> None:
    """Install version 1.0, and let pip find wheels of ``versions`` alone."""
    site, wheels = make_site(folder, monkeypatch), folder / "wheels"
    (site / "tiny_runtime.py").write_text(_CODE.format(times=1))
    install_offer(site, "tiny_runtime", "tiny")
    wheels.mkdir()
    for version in versions:
        _write_wheel(wheels, version)
    settings = {"NO_INDEX": "1", "FIND_LINKS": str(wheels), "CONFIG_FILE": "/dev/null"}
    for name, value in settings.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("BRICKS_ENVIRONMENTS", str(folder / "environments"))


def _write_wheel(folder: Path, version: str) -> None:
    facts = f"tiny_runtime-{version}.dist-info"
    files = {
        "tiny_runtime.py": _CODE.format(times=version.partition(".")[0]),
        f"{facts}/METADATA": f"Metadata-Version: 2.1\nName: tiny_runtime\nVersion: {version}\n",
        f"{facts}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{facts}/RECORD"
    files[record] = "".join(f"{name},,\n" for name in (*files, record))
    with zipfile.ZipFile(folder / f"tiny_runtime-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
