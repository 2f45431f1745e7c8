from __future__ import annotations

from pathlib import Path

import pytest
from added_packages import install_offer, make_site
from commands import CommandResult, Here, chain
from factories import save
from refusals import refused

from bricks import backends
from bricks.errors import BackendError, UsageError

GOOD = """
from bricks.backends import BackendInfo, Offer
from bricks.backends.fake.backend import FakeBackend


class Mine(Offer):
    def describe(self):
        return BackendInfo("mine", "3", "none", timed=False)

    def create(self, *, threads, seed, workers, optimization):
        return FakeBackend()


OFFER = Mine(name="mine", summary="my own")
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_site(tmp_path, monkeypatch)


def installed(site: Path, module: str, source: str, name: str = "mine") -> None:
    """A package with one module, and an entry point that leads to it."""
    (site / f"{module}.py").write_text(source, encoding="utf-8")
    install_offer(site, module, name)


def measured(here: Here, site: Path) -> CommandResult:
    return here("measure", save(chain("Relu", "Neg"), site, "pair.onnx"), runtime="mine")


def test_a_runtime_of_another_package_measures(here: Here, site: Path) -> None:
    installed(site, "good_one", GOOD)
    rows = here.plain("backends", "list", "--json").json["backends"]
    assert [row["name"] for row in rows] == [*backends.built_in(), "mine"]
    assert rows[-1] == {
        "name": "mine", "installed": True, "version": "3", "provider": "none",
        "environment": None, "missing": None, "note": None,
    }  # fmt: skip
    model = save(chain("Relu", "Neg"), site, "pair.onnx")
    done = here("compare", model, "--json", runtime="mine")
    assert done.json["runtime"]["backend"] == "mine"
    assert done.json["models"][0]["error"] is None
    assert done.json["models"][0]["measured_share"] == 1.0


def test_it_needs_no_installation(here: Here, site: Path) -> None:
    installed(site, "good_two", GOOD)
    done = here.plain("backends", "install", "mine")
    assert done.status == 0
    assert done.out == "mine 3 is installed: use it with --runtime mine\n"


def test_an_unknown_runtime_is_refused_with_all_names(site: Path) -> None:
    installed(site, "good_three", GOOD)
    with refused(UsageError, "tvm", *backends.built_in(), "mine"):
        backends.describe("tvm")


def test_a_module_that_cannot_be_imported_is_one_line(here: Here, site: Path) -> None:
    installed(site, "broken_one", "import no_such_thing")
    message = (
        "the runtime 'mine' of broken_one 1.0 cannot be imported"
        " (No module named 'no_such_thing'): install it anew, or remove it"
    )
    with pytest.raises(BackendError) as caught:
        backends.describe("mine")
    assert str(caught.value) == message
    rows = here.plain("backends", "list", "--json").json["backends"]
    assert (rows[-1]["installed"], rows[-1]["missing"]) == (False, message)


@pytest.mark.parametrize(
    "module, said, named",
    [
        (
            "other",
            "BackendInfo('onnxruntime', '3', 'none', timed=True)",
            ("onnxruntime", "BackendInfo"),
        ),
        ("nothing", "None", ("NoneType", "BackendInfo")),
        ("faulty", "1 / 0", ("ZeroDivisionError",)),
    ],
)
def test_an_invalid_description_is_refused(
    site: Path, module: str, said: str, named: tuple[str, ...]
) -> None:
    source = GOOD.replace('BackendInfo("mine", "3", "none", timed=False)', said)
    installed(site, module, source)
    with refused(BackendError, "mine", *named):
        backends.describe("mine")


def test_a_backend_that_cannot_be_made_is_one_line(here: Here, site: Path) -> None:
    installed(site, "sour", GOOD.replace("return FakeBackend()", "raise OSError('no device')"))
    done = measured(here, site)
    assert done.status == 1
    assert "create() of the runtime 'mine' failed: OSError: no device" in done.complaint


def test_a_result_that_is_no_backend_is_refused_by_type(here: Here, site: Path) -> None:
    installed(site, "plain", GOOD.replace("return FakeBackend()", "return 'ready'"))
    done = measured(here, site)
    assert done.status == 1
    assert "create() of the runtime 'mine' gives a str" in done.complaint


@pytest.mark.parametrize("offered", ["'mine'", "Mine(name='other')"])
def test_an_entry_point_to_another_offer_is_refused(site: Path, offered: str) -> None:
    installed(site, "unlike", GOOD.replace('Mine(name="mine", summary="my own")', offered))
    with refused(BackendError, "mine", "unlike 1.0", "bricks.backends.Offer"):
        backends.describe("mine")


def test_two_packages_with_one_name_are_both_named(site: Path) -> None:
    installed(site, "one_of_two", GOOD)
    installed(site, "two_of_two", GOOD)
    with refused(BackendError, "mine", "one_of_two 1.0", "two_of_two 1.0"):
        backends.describe("mine")


def test_no_package_replaces_a_runtime_that_comes_with_bricks(here: Here, site: Path) -> None:
    installed(site, "usurper", GOOD, name="fake")
    assert backends.names() == backends.built_in()
    assert backends.describe("fake").version == "1"


def test_a_type_that_a_backend_leaves_out_is_named(here: Here, site: Path) -> None:
    forgets = GOOD.replace("return FakeBackend()", "return Forgetful()") + (
        "\n\nclass Forgetful(FakeBackend):\n"
        "    def executed(self, proto):\n"
        "        found = super().executed(proto)\n"
        "        del found.types['v1'], found.proto.graph.value_info[:]\n"
        "        return found\n"
    )
    installed(site, "forgetful", forgets)
    done = measured(here, site)
    assert done.status == 1
    assert "the runtime tells no type of 'v1', which Relu 'Relu_v1' makes" in done.err
