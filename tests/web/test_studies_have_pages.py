"""A study has a page made of its options, and answers there from what is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from commands import until
from rough import ROUGH
from study_packages import installed_here
from web_server import Reply, Served, serving_here

from bricks import Bench
from bricks.session.options import Options

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")


def answered(served: Served, path: str, **query: object) -> Reply:
    """The answer of a study as JSON, once it is there."""
    address = f"/api{path}?{urlencode(query)}"
    found: Reply = until(lambda: (reply := served.get(address)).status != 202 and reply)
    return found


def test_a_study_of_another_package_has_a_page(tmp_path: Path) -> None:
    options = Options(runtime="fake", threads=1, conditions=ROUGH)
    with Bench(tmp_path / "cache", options, published=False) as bench:
        bench.measure([bench.read("squeezenet")])
    with (
        installed_here(tmp_path / "packages", energy="energy_study:OFFER"),
        serving_here(tmp_path / "cache") as served,
    ):
        form = served.get("/energy").text
        assert "How much energy does a model take?" in form
        assert 'name="watts"' in form and 'name="check"' not in form
        facts = answered(served, "/energy", models="squeezenet", watts="100W", runs=36).json
        assert "error" not in facts, facts
        (row,) = facts["models"]
        assert row["energy_wh"] == pytest.approx(row["latency_s"])  # 100 W for 36 s is 1 Wh
        page = served.get("/energy?models=squeezenet&watts=100W&runs=36").text
        assert "<table" in page
        assert "bricks energy squeezenet --watts 100W --runs 36" in page
        unknown = answered(served, "/energy", models="vgg19").json
        assert "vgg19" in str(unknown)
        assert "/api/energy" in served.get("/api/openapi.json").json["paths"]


@pytest.mark.parametrize(
    ("path", "query", "fact"),
    [
        ("/llm", {"model": "../../etc/passwd"}, "passwd"),
        ("/llm", {"model": "os:system"}, "os:system"),
        ("/llm", {"model": "decoder_lama"}, "did you mean decoder_llama?"),
        ("/llm", {"on": "a100", "model": "decoder_llama"}, "a100"),
        ("/training", {"workload": "evil.py:step"}, "evil.py:step"),
        ("/training", {"workload": "torch_vit_training", "latency": "soon"}, "soon"),
        ("/training", {"ranks": "2"}, "Training step is missing"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_in_one_line(
    served: Served, path: str, query: dict[str, Any], fact: str
) -> None:
    refused = served.get(f"/api{path}?{urlencode(query)}")
    assert refused.status == 400
    assert fact in refused.json["error"]
    page = served.get(f"{path}?{urlencode(query)}")
    assert page.status == 200
    assert "Traceback" not in page.text


def test_other_options_of_a_study_are_not_for_a_page(served: Served) -> None:
    page = served.get("/llm?check=yes").text
    assert 'name="check"' not in page
    assert "<h1>How fast does an LLM generate text?</h1>" in page


def test_pages_of_others_cannot_ask_a_study(served: Served) -> None:
    query = urlencode({"model": "decoder_llama", "batch": 3})
    for path in ("/llm", "/api/llm"):
        refused = served.get(f"{path}?{query}", sec_fetch_site="cross-site")
        assert refused.status == 403
