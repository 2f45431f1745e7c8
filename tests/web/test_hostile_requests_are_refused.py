"""Whatever is sent, the server answers others, tells no path, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import socket
import tempfile
from pathlib import Path

import pytest
from commands import ROOT, gone, until, workers
from factories import conv_net, mlp, model, node, value
from web_server import Reply, Served, serving, serving_here

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")


def head(served: Served, length: int, path: str = "/api/models") -> bytes:
    lines = (f"POST {path} HTTP/1.1", f"Host: {served.address}", f"Content-Length: {length}")
    return "\r\n".join((*lines, "", "")).encode()


def raw(served: Served, sent: bytes) -> socket.socket:
    host, _, port = served.address.partition(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.sendall(sent)
    return connection


def answer_on(connection: socket.socket) -> bytes:
    """The whole answer, which may come in pieces."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += connection.recv(4096)
    size = int(re.search(rb"content-length: (\d+)", found).group(1))  # type: ignore[union-attr]
    while len(found.partition(b"\r\n\r\n")[2]) < size:
        found += connection.recv(4096)
    return found


def test_what_is_too_large_is_refused_before_it_is_read(served: Served) -> None:
    with raw(served, head(served, 1 << 40)) as connection:
        answer = answer_on(connection)
    assert b" 413 " in answer.partition(b"\r\n")[0]
    assert b"send models without weights" in answer


def test_a_size_that_is_not_stated_is_refused(served: Served) -> None:
    with raw(
        served, head(served, 5).replace(b"Content-Length: 5", b"Transfer-Encoding: chunked")
    ) as c:
        assert b" 411 " in answer_on(c).partition(b"\r\n")[0]


def test_what_is_no_model_is_said_to_be_none(served: Served) -> None:
    for content in (
        b"", b"\x00" * 100, b"version https://git-lfs", os.urandom(1000),
        b"\x3a\xff\xff\xff\xff\x7f", b"GIF89a" * 50,
    ):  # fmt: skip
        job = served.finished(served.upload(content, name="thing"))
        assert job["state"] == "failed", content
        assert "thing" in job["error"]
        assert "/" not in job["error"]


def test_a_model_that_cannot_be_decomposed_fails_alone(served: Served) -> None:
    wrong = model([node("NoSuchOperator", ["x"], ["y"])], [value("x", [1])], [value("y", [1])])
    job = served.finished(served.upload(wrong.SerializeToString(), name="wrong"))
    assert job["state"] == "failed"
    assert "NoSuchOperator" in job["error"]
    good = served.finished(served.upload(mlp().SerializeToString(), name="good"))
    assert good["state"] == "done"


def test_data_outside_of_an_upload_is_not_read(served: Served) -> None:
    proto = mlp()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    for key, text in (("location", "../../etc/passwd"), ("offset", "0")):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, text
    job = served.finished(served.upload(proto.SerializeToString(), name="leak"))
    assert job["state"] == "failed"
    assert "outside the model's folder" in job["error"]


def test_errors_have_a_status_and_no_path(served: Served, folder: Path) -> None:
    for method, path, status in (
        ("GET", "/models/m1-..%2f..%2fetc", 404),
        ("GET", "/models/m1-zz", 404),
        ("GET", "/static/..%2fapp.py", 404),
        ("GET", "/static/app.py", 404),
        ("GET", "/jobs/none", 404),
        ("GET", "/systems/none", 404),
        ("GET", "/api/none", 404),
        ("GET", "/models/m1-00000000000000000000000000000000?threads=x", 400),
        ("POST", "/api/zoo/..%2f..%2fetc%2fpasswd", 404),
        ("POST", "/api/zoo/no-such-model", 400),
        ("POST", "/api/models?batch=0", 400),
        ("POST", "/api/models?batch=1e9", 400),
        ("DELETE", "/api/models", 405),
    ):
        reply = served.ask(method, path)
        assert reply.status == status, path
        for told in (str(folder), str(ROOT), tempfile.gettempdir(), "Traceback", ".py"):
            assert told not in reply.text.replace("app.py", ""), path


def test_pages_of_others_cannot_use_it(served: Served) -> None:
    content = mlp().SerializeToString()
    for headers in (
        {"origin": "http://evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"host": "evil.example"},
    ):
        assert served.ask("POST", "/api/models", content, **headers).status == 403
    assert served.get("/", host="evil.example:8080").status == 403
    own = served.ask("POST", "/api/zoo/no-such-model", origin=served.url)
    assert own.status == 400


def test_off_loopback_only_its_own_and_allowed_names_are_answered(tmp_path: Path) -> None:
    """A page elsewhere reaches any server that its reader can reach, by a name of its own."""
    content = mlp().SerializeToString()
    with serving_here(tmp_path, host="0.0.0.0", allowed_hosts=["Bricks.example"]) as served:
        port = served.address.partition(":")[2]
        for name in (
            f"127.0.0.1:{port}",
            f"localhost:{port}",
            "bricks.example",
            "BRICKS.example:443",
        ):
            assert served.get("/", host=name).status == 200, name
        for name in (f"evil.example:{port}", "192.0.2.7", "sub.bricks.example", "[::2]", ""):
            for reply in (
                served.get("/", host=name),
                served.ask("POST", "/api/models", content, host=name, origin=f"http://{name}"),
            ):
                assert reply.status == 403, name
                assert len(reply.text.splitlines()) == 1
                assert "--allow-host" in reply.text
        assert "evil.example" in served.get("/", host="evil.example").text


def test_the_address_that_a_connection_leads_to_is_a_name(tmp_path: Path) -> None:
    with serving_here(tmp_path, host="0.0.0.0") as served:
        port = served.address.partition(":")[2]
        other = Served(f"127.0.0.2:{port}")
        assert other.get("/").status == 200
        assert other.get("/", host=f"127.0.0.3:{port}").status == 403


def test_clients_behind_a_proxy_have_shares_of_their_own_only_where_it_is_trusted(
    tmp_path: Path,
) -> None:
    def busy(served: Served) -> list[bool]:
        """Whether a client has no room left, while another client behind the proxy uploads two."""
        begun = head(served, 1000).replace(b"\r\n\r\n", b"\r\nX-Forwarded-For: %s\r\n\r\n\x08")
        arriving = [raw(served, begun % b"203.0.113.9, 198.51.100.1") for _ in range(2)]
        try:
            same = "192.0.2.5, 198.51.100.1"  # what a client itself claims stands before
            until(lambda: _upload(served, same).status == 503)
            return [_upload(served, client).status == 503 for client in (same, "198.51.100.2")]
        finally:
            for connection in arriving:
                connection.close()

    with serving_here(tmp_path / "trusting", trusted_proxies=["127.0.0.1"]) as served:
        assert busy(served) == [True, False]
    with serving_here(tmp_path / "other", trusted_proxies=["192.0.2.1"]) as served:
        assert busy(served) == [True, True]
    with serving_here(tmp_path / "none") as served:
        assert busy(served) == [True, True]


def _upload(served: Served, forwarded_for: str) -> Reply:
    return served.ask(
        "POST", "/api/models?name=x", b"x", content_type="application/octet-stream",
        x_forwarded_for=forwarded_for,
    )  # fmt: skip


def test_one_client_has_a_share_and_others_are_served(served: Served) -> None:
    arriving = [raw(served, head(served, 1000) + b"\x08") for _ in range(2)]
    try:
        refused = until(lambda: (r := served.upload(b"x", name="third")).status == 503 and r)
        assert "2 models of yours" in refused.json["error"]
        assert refused.headers["retry-after"] == "10"
        assert served.get("/").status == 200
    finally:
        for connection in arriving:
            connection.close()
    until(lambda: served.upload(mlp().SerializeToString(), name="again").status == 202)


@pytest.mark.slow
def test_killed_amid_an_upload_it_leaves_nothing_behind(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    places = {"BRICKS_PUBLISHED": os.devnull, "TMPDIR": str(temporary)}
    content = conv_net().SerializeToString()
    with serving("--cache", tmp_path / "cache", **places) as served:
        assert served.get("/").status == 200
        before = {p.name: p.stat().st_size for p in (tmp_path / "cache").iterdir()}
        with raw(served, head(served, len(content) + 1) + content):
            # It has read what has arrived so far, or has not: both may be.
            children = workers(served.process.pid)
            served.process.kill()
            served.process.wait()
        until(lambda: gone(children))
    assert {p.name: p.stat().st_size for p in (tmp_path / "cache").iterdir()} == before
    assert [p for p in temporary.rglob("*") if p.is_file()] == []
