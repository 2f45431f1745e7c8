import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from subprocess import run

import onnx
import pytest
from commands import COMMAND, PATIENCE_S, Here, bricks, chain, environment, started
from factories import constant, conv_net, mlp, model, node, save, value
from sqlalchemy import Engine, event
from tiers import slow_but

from bricks import __version__
from bricks.cli.output import drop_output
from bricks.store import SCHEMA_VERSION

X, Y = value("x", [1]), value("y", [1])
FOREIGN = model([node("Gelu", ["x"], ["y"], domain="org.x")], [X], [Y], domains=["org.x"])
COMMANDS = ("decompose", "measure", "predict", "compare")


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return save(mlp(), tmp_path, "good.onnx")


def corrupt(tmp_path: Path, name: str, content: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


def no_file_of_ours_is_lost(here: Here, good: Path) -> None:
    assert here("measure", good, "--json").json["new_bricks"] == 0
    assert here.plain("cache", "verify", "--cache", here.cache).status == 0


# Models


OPEN = value("x", ["N", "T"])


@pytest.mark.parametrize(
    ("proto", "text"),
    [
        (model([], [X], [Y]), "x.onnx: nobody produces the output 'y'"),
        (
            model([node("Frobnicate", ["x"], ["y"], name="f")], [X], [Y]),
            "x.onnx: node Frobnicate 'f': domain ai.onnx, opset 17, has no operator Frobnicate",
        ),
        (FOREIGN, "the fake runtime cannot infer the shape of 'y', which Gelu of domain org.x"),
        (
            model([node("Relu", ["x"], ["y"])], [OPEN], [value("y", ["N", "T"])]),
            "x.onnx: input 'x' has open dimensions 'N' (axis 0), 'T' (axis 1): try bricks measure ",
        ),
        (mlp(widths=(3, 4)), None),
    ],
)
def test_a_model_that_cannot_be_used_is_one_line(
    here: Here, tmp_path: Path, proto: onnx.ModelProto, text: str | None
) -> None:
    done = here("measure", save(proto, tmp_path, "x.onnx"))
    if text is None:
        assert (done.status, done.err) == (0, "")
    else:
        assert done.status == 1
        assert text in done.complaint
        assert done.out == ""


def test_an_open_batch_is_1_and_said_once(here: Here, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    save(conv_net(batch="N"), tmp_path / "one", "x.onnx")
    alone = here("measure", tmp_path / "one" / "x.onnx")
    assert alone.status == 0
    assert alone.complaint == (
        "batch 1 was assumed for the open axis N of x.onnx: --batch changes it"
    )
    save(mlp(batch=""), tmp_path / "one", "y.onnx")
    both = here("predict", tmp_path / "one", "--json")
    assert [(row["model"], row["batch"]) for row in both.json["models"]] == [("x", 1), ("y", 1)]
    assert both.complaint.endswith("open first axis of x.onnx, y.onnx: --batch changes it")
    assert here("predict", tmp_path / "one", "--batch", "2,1").err == ""


def test_a_file_that_is_no_model_is_one_line(here: Here, tmp_path: Path) -> None:
    for content, text in (
        (b"hello, this is text\n", "x.onnx is not an ONNX model"),
        (b"", "x.onnx is not an ONNX model"),
        (conv_net().SerializeToString()[:5000], "x.onnx is cut short"),
    ):
        done = here("predict", corrupt(tmp_path, "x.onnx", content))
        assert done.status == 1, content
        assert text in done.complaint


@pytest.mark.parametrize("granularity", slow_but("executed".__eq__, ["executed", "2"]))
def test_what_onnxruntime_refuses_is_one_line(here: Here, tmp_path: Path, granularity: str) -> None:
    path = save(FOREIGN, tmp_path, "foreign.onnx")
    for command in ("measure", "compare"):
        done = here(command, path, "--granularity", granularity, runtime="onnxruntime")
        assert done.status == 1
        assert done.complaint.startswith("foreign: onnxruntime failed while")
        assert "org.x:Gelu" in done.complaint


def test_a_model_that_is_not_there_is_one_line(here: Here) -> None:
    for name, *facts in (
        ("none.onnx", "'none.onnx'", "check the path"),
        ("squeeznet", "'squeeznet'", "did you mean squeezenet?"),
        ("a/b", "'a/b'", "check the path"),
        ("~nobody-here/b", "'~nobody-here/b'", "check the path"),
        ("", "empty", "give a file, a folder or a zoo model"),
    ):
        done = here("measure", name)
        assert (done.status, done.out) == (1, ""), name
        assert all(fact in done.complaint for fact in facts), done.complaint


def test_a_folder_without_models_is_one_line(here: Here, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    done = here("compare", folder)
    assert done.status == 1
    assert done.complaint == f"the folder {folder} holds no .onnx file: give a folder that does"


@pytest.mark.parametrize("command", COMMANDS)
def test_one_bad_model_does_not_stop_the_others(
    here: Here, tmp_path: Path, good: Path, command: str
) -> None:
    bad = corrupt(tmp_path, "bad.onnx", b"no model at all")
    done = here(command, good, bad, save(FOREIGN, tmp_path, "odd.onnx"), "--json")
    assert done.status == 1
    first, second, third = done.json["models"]
    assert [row["model"] for row in (first, second, third)] == ["good", "bad", "odd"]
    assert first["error"] is None
    assert "is not an ONNX model" in second["error"]
    assert "cannot infer the shape" in third["error"]
    said = [f"bricks: {row['error']}" for row in (second, third)]
    assert done.err.splitlines() == said
    assert first.keys() == second.keys() == third.keys()


# Usage


def test_options_that_cannot_be_meant_are_wrong_usage(here: Here, good: Path) -> None:
    for options, text in (
        (["--threads", "0"], "--threads: "),
        (["--threads", "two"], "--threads: "),
        (["--threads", "1025"], "--threads: "),
        (["--threads", "99999999999999"], "--threads: "),
        (["--batch", "0"], "--batch: "),
        (["--batch", "2147483648"], "--batch: "),
        (["--batch", "9223372036854775807"], "--batch: "),
        (["--batch", "9999999999999999999999"], "--batch: "),
        (["--cache", ""], "is empty: give a folder or a database URL"),
        (["--budget", "-1"], "--budget: "),
        (["--precision", "0"], "--precision: "),
        (["--granularity", "0"], "granularity '0' is neither 'executed' nor a number"),
        (["--granularity", "x"], "granularity 'x' is neither 'executed' nor a number"),
        (["--runtime", "nonsense"], "no runtime is called 'nonsense': choose one of onnxruntime"),
        (["--shape", "1x2"], "not a shape: '1x2': give NAME=1x3x224x224"),
        (["--shape", "x=1xa"], "not a shape: 'x=1xa': '1xa' is not a list like 1x3x224x224"),
        (["--shape", "x=2147483648"], "dimensions are whole numbers from 0 to 2147483647"),
        (["--shape", "x=" + "9" * 22], "dimensions are whole numbers from 0 to 2147483647"),
        (["--shape", "x=1x32", "--shape", "x=1x32"], "--shape gives input 'x' twice"),
        (["--treads", "1"], "No such option: --treads"),
    ):
        runtime = [] if "--runtime" in options else ["--runtime", "fake"]
        cache = [] if "--cache" in options else ["--cache", here.cache]
        done = here.plain("measure", good, *options, *runtime, *cache)
        assert (done.status, done.out) == (2, ""), options
        assert text in done.complaint
        assert done.complaint.endswith("--help')")


def test_a_shape_for_an_input_that_is_not_there_names_the_inputs(here: Here, good: Path) -> None:
    done = here("measure", good, "--shape", "foo=1x2")
    assert done.status == 1
    assert done.complaint == "good.onnx: there is no input 'foo'; inputs are: 'x'"


def test_commands_that_do_not_exist_are_wrong_usage(here: Here) -> None:
    for line, *facts in (
        ("measure", "MODEL", "(try 'bricks measure --help')"),
        ("meassure", "'meassure'", "'measure'"),
        ("--nonsense", "--nonsense", "(try 'bricks --help')"),
        ("cache nonsense", "'nonsense'"),
    ):
        done = here.plain(*line.split())
        assert done.status == 2, line
        assert all(fact in done.complaint for fact in facts), done.complaint


def test_the_version_is_told_without_a_command(here: Here) -> None:
    done = here.plain("--version")
    assert (done.status, done.out, done.err) == (0, f"bricks {__version__}\n", "")


def test_a_system_that_the_cache_does_not_know_is_wrong_usage(here: Here, good: Path) -> None:
    done = here("predict", good, "--on", "deep-thought")
    assert done.status == 2
    assert "no deep-thought among the known systems (" in done.complaint


# The cache


def test_a_cache_that_is_no_database_is_left_alone(here: Here, good: Path) -> None:
    here.cache.mkdir()
    file = corrupt(here.cache, "bricks.sqlite", b"my diary\n" * 300)
    for command in (["measure", good], ["systems"], ["cache", "stats"], ["cache", "verify"]):
        done = here.plain(*command, "--cache", here.cache)
        assert done.status == 1
        assert f"{file} is not a bricks cache" in done.complaint
        assert "give another --cache" in done.complaint
    assert file.read_bytes() == b"my diary\n" * 300


def test_a_cache_of_a_newer_schema_is_left_alone(here: Here, good: Path) -> None:
    here("measure", good)
    with closing(sqlite3.connect(here.cache / "bricks.sqlite")) as connection, connection:
        connection.execute(
            "UPDATE bricks_cache_info SET value = '99' WHERE name = 'schema_version'"
        )
    done = here("predict", good)
    assert done.status == 1
    assert "has schema version 99" in done.complaint
    assert "update bricks, or give another --cache" in done.complaint
    with closing(sqlite3.connect(here.cache / "bricks.sqlite")) as connection, connection:
        connection.execute(
            "UPDATE bricks_cache_info SET value = ? WHERE name = 'schema_version'",
            (str(SCHEMA_VERSION),),
        )
    no_file_of_ours_is_lost(here, good)


def test_looking_into_a_cache_that_is_not_there_makes_none(here: Here) -> None:
    for words in ("stats", "stats --json", "verify", "verify --json"):
        done = here.plain("cache", *words.split(), "--cache", here.cache)
        assert (done.status, done.out) == (1, ""), words
        assert str(here.cache) in done.complaint and "--cache" in done.complaint
        assert not here.cache.exists()


def test_systems_of_a_cache_that_is_not_there_are_this_host_alone(here: Here) -> None:
    done = here.plain("systems", "--cache", here.cache)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("This host is ")
    assert "no system is known yet" in done.out
    done = here.plain("systems", "--json", "--cache", here.cache)
    assert done.json["systems"] == []
    assert not here.cache.exists()


def test_a_cache_that_cannot_be_made_is_one_line(here: Here, good: Path) -> None:
    done = here.plain("measure", good, "--cache", good / "cache")
    assert done.status == 1
    assert f"the cache folder {good}/cache cannot be created" in done.complaint


def test_a_damaged_cache_is_one_line(here: Here, good: Path) -> None:
    here("measure", good)
    file = here.cache / "bricks.sqlite"
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    file.write_bytes(content)
    done = here("predict", good)
    assert done.status == 1
    assert f"the cache {file} is not a bricks cache any more" in done.complaint
    found = here.plain("cache", "verify", "--cache", here.cache)
    assert found.status == 1
    assert "Traceback" not in found.err


@contextmanager
def full_disk(pages: int) -> Iterator[None]:
    """A cache opened meanwhile grows to no more than ``pages``."""

    def limit(connection: sqlite3.Connection, _: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages}")

    event.listen(Engine, "connect", limit)
    try:
        yield
    finally:
        event.remove(Engine, "connect", limit)


def pages_of(here: Here) -> int:
    with closing(sqlite3.connect(here.cache / "bricks.sqlite")) as connection:
        found: int = connection.execute("PRAGMA page_count").fetchone()[0]
    return found


def samples(here: Here) -> int:
    found: int = here.plain("cache", "stats", "--json", "--cache", here.cache).json["samples"]
    return found


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_nothing_is_lost(
    here: Here, tmp_path: Path, good: Path
) -> None:
    """The disk is full at once, then a little later each time, then in the middle of measuring."""
    here("measure", good)
    operators = ("Abs", "Neg", "Exp", "Sqrt", "Erf", "Floor", "Ceil", "Sin", "Cos", "Tanh")
    new = [save(chain(*operators, width=70 + i), tmp_path, f"new{i}.onnx") for i in range(16)]
    kept, growth, first = samples(here), [], pages_of(here)
    for pages in range(first, first + 90, 2):
        with full_disk(pages):
            # So many rounds that they take several pages.
            done = here("measure", *new, "--precision", "0.0001")
        assert done.status == 1
        assert "cannot be written, the disk is full: free some space" in done.complaint
        growth.append(samples(here) - kept)
        assert growth[-1] >= 0
        kept += growth[-1]
        if sum(map(bool, growth)) == 3:
            break
    assert growth[0] == 0
    assert sum(map(bool, growth)) == 3, "it never was in the middle of measuring"
    assert here("measure", *new, "--precision", "0.0001").status == 0
    assert samples(here) > kept
    no_file_of_ours_is_lost(here, good)
    assert here("predict", *new, "--no-measure").status == 0


# Standard output


@pytest.mark.parametrize(
    ("options", "shell"),
    [([], '"$@" >/dev/full'), (["--json"], '"$@" >&-')],
    ids=["full", "closed"],
)
def test_output_that_nothing_takes_is_one_line(
    tmp_path: Path, options: list[str], shell: str
) -> None:
    words = [*COMMAND, "systems", *options, "--cache", str(tmp_path / "cache")]
    done = run(["sh", "-c", shell, "sh", *words], capture_output=True, text=True, env=environment())
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("bricks: standard output cannot be written")


def test_a_reader_that_stops_reading_is_no_reason_to_shout(tmp_path: Path) -> None:
    with started("systems", "--json", "--cache", tmp_path / "cache") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 1
        assert process.stderr.read() == ""
        process.stdout = None


def test_output_that_is_discarded_holds_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(tmp_path / "output", "w") as output:
        monkeypatch.setattr("sys.stdout", output)
        before = len(os.listdir("/proc/self/fd"))
        drop_output()
        assert len(os.listdir("/proc/self/fd")) == before
        output.write("lost")
    assert (tmp_path / "output").read_text() == ""


def test_a_terminal_without_unicode_gets_replacements() -> None:
    done = bricks("zoo", "list", PYTHONIOENCODING="ascii")
    assert (done.status, done.err) == (0, "")
    assert "1?3?224?224" in done.out


@pytest.mark.parametrize("command", slow_but("predict".__eq__, ["predict", "compare"]))
def test_a_batch_size_that_the_model_does_not_allow_is_named(
    here: Here, tmp_path: Path, command: str
) -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Reshape", ["a", "shape"], ["y"])]
    proto = model(nodes, [value("x", [1, 4, 2])], [value("y", [1, 8])], [constant("shape", [1, 8])])
    path = save(proto, tmp_path, "fixed.onnx")
    done = here(command, path, "--threads", 1, "--batch", 3, runtime="onnxruntime")
    assert done.status == 1
    assert "its batch size was fixed" in done.complaint


@pytest.mark.parametrize("command", ["predict", "measure", "compare", "explain"])
def test_more_threads_than_processors_are_refused_where_they_would_be_measured(
    here: Here, tmp_path: Path, command: str
) -> None:
    path = save(conv_net(), tmp_path, "net.onnx")
    done = here(command, path, "--threads", 1000, runtime="onnxruntime")
    assert done.status == 2 and "--threads 1000" in done.complaint
    if command == "predict":
        assert here("predict", path, "--threads", 1000, runtime="fake").status == 0
