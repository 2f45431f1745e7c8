"""A model goes in, answers for all known systems come out: as pages and as JSON."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

import pytest
from commands import PATIENCE_S, Here, until
from factories import conv_net, mlp
from web_caches import BIG
from web_models import open_batch
from web_server import Reply, Served, serving, serving_here

from bricks.web.server_limits import Keep

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")


@pytest.fixture(scope="module")
def conv(served: Served) -> dict:
    return served.answers(conv_net().SerializeToString(), name="conv")


def test_each_known_target_has_an_answer(served: Served, conv: dict, folder: Path) -> None:
    told = {(row["system"], row["threads"]): row for row in conv["answers"]}
    assert len(told) == 4
    assert all(row["predicted_share"] == 0.0 for row in told.values())
    own = {key: row["measured_share"] for key, row in told.items()}
    assert {key: 1.0 - row["published_share"] for key, row in told.items()} == own
    assert {*own.values()} == {0.0, 1.0}  # some targets are published, the others are its own
    assert all(row["low_s"] <= row["estimate_s"] <= row["high_s"] for row in told.values())
    assert all(row["peak_bytes"] > 0 for row in told.values())
    priced = told[BIG.name, 1]
    assert priced["cost_per_million"] == pytest.approx(2 / 3600 * priced["estimate_s"] * 1e6)
    assert told["arm", 1]["cost_per_million"] is None


def test_an_answer_is_that_of_the_command_line(
    here: Here,
    served: Served,
    conv: dict,
    folder: Path,
    variables: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    words = ("predict", folder / "conv.onnx", "--on", "all", "--threads", 1, "--json")
    done = here.plain(*words, "--runtime", "fake", "--cache", folder / "cache")
    rows = {row["system"]: row for row in done.json["models"]}
    compared = [row for row in conv["answers"] if row["threads"] == 1]
    for row in compared:
        same = rows[row["system"]]
        assert (row["estimate_s"], row["low_s"]) == (same["estimate_s"], same["low_s"])
    one = served.get(f"/api/models/{conv['digest']}?threads=1").json
    assert one["answer"] == done.json["answer"]


def test_an_address_of_an_answer_stays(served: Served, conv: dict) -> None:
    again = served.answers(conv_net(seed=7).SerializeToString(), name="other")
    assert again["digest"] == conv["digest"]  # weights make no difference
    page = served.get(f"/models/{conv['digest']}")
    assert page.status == 200
    assert page.body == served.get(f"/models/{conv['digest']}").body
    assert BIG.name in page.text
    two = served.get(f"/api/models/{conv['digest']}?threads=2").json
    assert {row["threads"] for row in two["answers"]} == {2}


def test_the_batch_makes_another_model(served: Served, conv: dict) -> None:
    found = served.answers(conv_net().SerializeToString(), name="conv", batch=4)
    assert (found["batch"], conv["batch"]) == (4, 1)
    assert found["digest"] != conv["digest"]


def test_the_first_line_is_the_answer_and_a_bound_is_judged_by_the_interval(
    served: Served, conv: dict
) -> None:
    fastest, *_ = [row for row in conv["answers"] if row["error"] is None]
    assert "conv is fastest" in conv["answer"]
    address = f"models/{conv['digest']}"
    page = served.get(f"/{address}").text.replace("\u00a0", " ")
    assert f"<h1>{conv['answer']}</h1>" in page
    for bound_s, meets in (
        (fastest["high_s"] * 1.001, "yes"),
        ((fastest["low_s"] + fastest["estimate_s"]) / 2, "uncertain"),
        (fastest["low_s"] * 0.999, "no"),
    ):
        judged = served.get(f"/api/{address}?slo_ms={1e3 * bound_s:.9g}").json["answers"]
        assert {row["meets_slo"] for row in judged if row["target"] == fastest["target"]} == {meets}
    assert {row["meets_slo"] for row in conv["answers"]} == {None}


def test_another_batch_is_asked_for_at_the_same_address(served: Served, conv: dict) -> None:
    address = f"/models/{conv['digest']}?batch=6&threads=1&slo_ms=20"
    redirected = served.get(address).headers["location"]
    until(lambda: served.get(redirected).status in (200, 303))
    again = until(lambda: "/models/" in (at := served.get(address).headers["location"]) and at)
    assert again.endswith("?threads=1&slo_ms=20")
    assert conv["digest"] not in again
    assert served.get("/api" + again).json["batch"] == 6


def test_open_axes_of_an_upload_are_asked_for(served: Served) -> None:
    job = served.finished(served.upload(open_batch("T").SerializeToString(), name="open"))
    assert [axis["title"] for axis in job["open_axes"]] == ["Batch (N)", "Axis 1 of x (T)"]
    assert job["open_axes"][0]["example"] == 1
    page = served.get(f"/jobs/{job['job']}").text
    assert "Which size has open?" in page
    sent = served.ask("POST", f"/jobs/{job['job']}", b"size0=2&size1=5")
    assert sent.status == 303
    again = until(lambda: "/models/" in (at := location(served, sent)) and at)
    assert served.get("/api" + again).json["batch"] == 2
    assert served.ask("POST", f"/jobs/{job['job']}", b"size0=-2").status == 400


def location(served: Served, sent: Reply) -> str:
    """The address of the answer of a job, or of its page."""
    here: str = sent.headers["location"]
    return served.get(here).headers.get("location", here) if "/jobs/" in here else here


def test_what_is_unknown_is_said_by_name(served: Served) -> None:
    found = served.answers(mlp().SerializeToString(), name="mlp")
    by_system = {row["system"]: row for row in found["answers"]}
    assert "was never decomposed on arm" in by_system["arm"]["error"]
    page = served.get(f"/models/{found['digest']}").text
    assert "was never decomposed on arm" in page


def test_a_model_of_the_zoo_needs_no_upload(served: Served) -> None:
    job = served.finished(served.ask("POST", "/api/zoo/squeezenet"))
    assert job["state"] == "done"
    assert served.get(f"/api/models/{job['digest']}").json["model"] == "squeezenet"
    sent = served.ask("POST", "/answers", b"model=squeezenet&batch=&threads=1")
    assert sent.status == 303
    assert re.fullmatch(r"/jobs/[\w-]+\?threads=1", sent.headers["location"])


def test_where_the_time_goes_is_shown_for_each_target(served: Served, conv: dict) -> None:
    row = conv["answers"][0]
    found = served.get(f"/api/models/{conv['digest']}/{row['target']}").json
    assert found["estimate_s"] == row["estimate_s"]
    assert sum(group["share"] for group in found["operators"]) == pytest.approx(1)
    page = served.get(f"/models/{conv['digest']}/{row['target']}")
    assert page.status == 200
    assert 'data-chart="breakdown"' in page.text


def test_a_link_that_names_a_model_leads_to_its_answer(served: Served) -> None:
    leads = served.get("/?model=squeezenet&threads=1")
    assert leads.status == 303
    assert re.fullmatch(r"/(models/m1|jobs/)[\w-]+\?threads=1", leads.headers["location"])
    form = served.get("/?model=squeezenet", sec_fetch_site="cross-site")
    assert 'value="squeezenet"' in form.text, "a page of another site causes no work"
    assert served.get("/?model=squezenet").status == 400


def test_systems_and_the_zoo_can_be_searched(served: Served, conv: dict) -> None:
    every = served.get("/api/systems").json["systems"]
    assert {system["name"] for system in every} >= {"big", "arm"}
    (big,) = served.get("/api/systems?q=big+aarch64").json["systems"] or [None]
    assert big is None
    (arm,) = served.get("/api/systems?q=arm+aarch64").json["systems"]
    assert arm["published"]
    assert served.get(f"/systems/{arm['key']}").status == 200
    assert served.get(f"/api/systems/{arm['key']}").json == arm
    names = [each["name"] for each in served.get("/api/zoo?q=squeezenet").json["models"]]
    assert "squeezenet" in names
    assert "squeezenet" in served.get("/zoo?q=squeezenet").text
    assert "0 of" in served.get("/zoo?q=no-such-model").text


def test_the_description_names_each_address_and_each_property(served: Served, conv: dict) -> None:
    described = served.get("/api/openapi.json").json
    schemas = described["components"]["schemas"]
    assert set(schemas["Model"]["properties"]) == set(conv)
    assert set(schemas["Answer"]["properties"]) == set(conv["answers"][0])
    where = served.get(f"/api/models/{conv['digest']}/{conv['answers'][0]['target']}").json
    assert set(schemas["Where"]["properties"]) == set(where)
    from starlette.routing import Route

    from bricks.session.options import Options
    from bricks.web.app import application

    routes = application("unused", Options(runtime="fake"), host="127.0.0.1").routes
    there = {
        (route.path, method.lower())
        for route in routes
        if isinstance(route, Route) and route.path.startswith("/api/")
        for method in (route.methods or set()) - {"HEAD"}
    }
    told = {(path, method) for path, of in described["paths"].items() for method in of}
    assert told == there


def test_names_are_escaped_and_no_page_may_load_anything(served: Served) -> None:
    found = served.answers(mlp(widths=(8, 5)).SerializeToString(), name="%3Cscript%3Ealert(1)")
    page = served.get(f"/models/{found['digest']}")
    assert "<script>alert" not in page.text
    assert "&lt;script&gt;alert(1)" in page.text
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"


def stats(here: Here, cache: Path) -> dict:
    return here.plain("cache", "stats", "--json", "--cache", cache).json


def test_it_measures_nothing_and_keeps_only_plans(
    served: Served, conv: dict, here: Here, folder: Path
) -> None:
    before = stats(here, folder / "cache")
    served.answers(mlp(widths=(9, 5)).SerializeToString(), name="kept")
    after = stats(here, folder / "cache")
    assert after["plans"] > before["plans"]
    assert after["measurements"] == before["measurements"]
    assert [p.name for p in (folder / "cache").iterdir() if p.is_dir()] == []
    assert served.get("/api/models/m1-" + "0" * 32).status == 404


def test_what_is_kept_of_a_model_is_decided_by_an_option(
    here: Here, folder: Path, tmp_path: Path
) -> None:
    content = mlp(widths=(10, 6)).SerializeToString()
    cache = shutil.copytree(folder / "cache", tmp_path / "cache")
    with serving_here(cache, keep=Keep.NOTHING) as served:
        digest = served.answers(content, name="secret")["digest"]
        assert served.get(f"/models/{digest}").status == 200
        row, *_ = served.get(f"/api/models/{digest}").json["answers"]
        assert served.get(f"/models/{digest}/{row['target']}").status == 200
    assert not any(b"secret" in p.read_bytes() for p in cache.iterdir())
    with serving_here(cache, keep=Keep.MODEL, measure=True) as served:
        assert served.get(f"/models/{digest}").status == 404
        found = served.answers(content, name="secret")
    assert 1.0 in [row["measured_share"] for row in found["answers"]]
    assert [file.name for file in (cache / "uploads").iterdir()] == [f"{digest}.onnx"]


@pytest.mark.parametrize(
    ("number", "status"),
    [pytest.param(signal.SIGTERM, -signal.SIGTERM, marks=pytest.mark.slow), (signal.SIGINT, 130)],
)
def test_a_process_of_its_own_answers_and_ends_when_told_to(
    folder: Path, variables: dict[str, str], number: signal.Signals, status: int
) -> None:
    with serving("--cache", folder / "cache", **variables) as served:
        assert BIG.name in served.get("/systems").text
        served.process.send_signal(number)
        assert served.process.wait(PATIENCE_S) == status


def test_wrong_options_are_one_line(here: Here) -> None:
    for words, status, *facts in (
        ("--keep all", 2, "--keep 'all'", "plan", "model", "nothing"),
        ("--keep nothing --measure", 2, "--keep nothing", "--measure"),
        ("--allow-host http://x", 2, "--allow-host 'http://x'", "bricks.example.com"),
        ("--allow-host x:8080", 2, "--allow-host 'x:8080'"),
        ("--trust-proxy *", 2, "--trust-proxy '*'", "192.0.2.0/24"),
        ("--trust-proxy proxy", 2, "--trust-proxy 'proxy'"),
        ("--host 256.1.1.1", 1, "256.1.1.1", "--host"),
    ):
        done = here("web", *words.split())
        assert done.status == status, words
        assert all(fact in done.complaint for fact in facts), done.complaint
