"""What is offered at Tab: asked in this process, and by a real bash of the real program."""

import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import COMMAND, PATIENCE_S, CommandResult
from factories import mlp, save
from rough import ROUGH
from terminals import plain, terminal

from bricks import Bench
from bricks.backends import offers
from bricks.cli import main
from bricks.cli.completion import joined
from bricks.cli.options import EFFORTS, GRANULARITIES, KEPT, OPTIMIZATIONS
from bricks.zoo import entries

in_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")

# What bash does when somebody presses Tab: it splits the line at = too, and calls the function.
ASK = """
. "$0"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_bricks_completion bricks
printf '%s\\n' "${COMPREPLY[@]}"
"""

Complete = Callable[..., list[str]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where shells look for programs: ``bricks`` is there, whether it is installed or not."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "bricks"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a shell is told to read when it starts."""
    variables = plain(_BRICKS_COMPLETE="source_bash")
    done = subprocess.run(COMMAND, capture_output=True, text=True, env=variables)
    assert (done.returncode, done.stderr) == (0, "")
    file = tmp_path_factory.mktemp("script") / "bricks.sh"
    file.write_text(done.stdout)
    return file


@pytest.fixture
def real(path: str, script: Path, tmp_path: Path) -> Complete:
    """What a real bash is offered for the last of some words, in a folder of their own."""

    def ask(*words: object, **variables: str) -> list[str]:
        done = subprocess.run(
            ["bash", "--norc", "-c", ASK, str(script), "bricks", *map(str, words)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=plain(PATH=path, **variables),
            timeout=PATIENCE_S,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return [line for line in done.stdout.splitlines() if line]

    return ask


Asked = Callable[..., CommandResult]


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str]) -> Asked:
    """What the program answers, in this process, to a shell that sets some variables."""

    def ask(**variables: str) -> CommandResult:
        capsys.readouterr()
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
            for name, value in variables.items():
                patch.setenv(name, value)
            main.run([])
        captured = capsys.readouterr()
        return CommandResult(int(ended.value.code or 0), captured.out, captured.err)

    return ask


@pytest.fixture
def complete(asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """As ``real``, without a shell: what it would ask, in this process."""
    monkeypatch.chdir(tmp_path)

    def ask(*words: object, **variables: str) -> list[str]:
        line = "\n".join(("bricks", *map(str, words)))
        there = {"COMP_WORDS": line, "COMP_CWORD": str(len(words)), **variables}
        done = asked(_BRICKS_COMPLETE="complete_bash", **there)
        assert (done.status, done.err) == (0, "")
        return [line for line in done.out.splitlines() if line]

    return ask


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that knows this host, by a name that somebody gave it."""
    folder = tmp_path_factory.mktemp("known")
    with Bench(folder / "cache", runtime="fake", conditions=ROUGH) as bench:
        bench.measure([bench.read(save(mlp(), folder, "mlp.onnx"))])
        rename(bench, "this-host")
    return folder / "cache"


def rename(bench: Bench, name: str) -> None:
    bench.store.systems.describe(bench.target.system.key, name=name)


def test_commands_and_options(complete: Complete) -> None:
    assert complete("pre") == ["predict"]
    assert complete("cache", "ex") == ["export"]
    assert complete("predict", "--eff") == ["--effort"]
    assert "--quiet" in complete("measure", "--")


def test_values_of_options(complete: Complete) -> None:
    for option, offered in (
        ("--effort", EFFORTS),
        ("--runtime", {offer.name: offer.summary for offer in offers()}),
        ("--granularity", GRANULARITIES),
        ("--optimization", OPTIMIZATIONS),
    ):
        assert complete("predict", option, "") == list(offered)
        first = next(iter(offered))
        assert complete("predict", "x", option, first[:3]) == [first]
        # An = is a word of its own to bash.
        assert complete("predict", option, "=") == list(offered)
        assert complete("predict", option, "=", first[:3]) == [first]
    assert complete("web", "--keep", "") == list(KEPT)


def test_models_of_the_zoo(complete: Complete) -> None:
    zoo = {entry.name for entry in entries()}
    for words in ("measure", "predict squeezenet", "compare --effort quick", "probe"):
        assert complete(*words.split(), "squeezen") == ["squeezenet"], words
        assert zoo <= set(complete(*words.split(), "")), words


def test_only_models_of_the_zoo_can_be_built(complete: Complete, tmp_path: Path) -> None:
    (tmp_path / "squeeze.onnx").touch()
    assert complete("zoo", "build", "squeez") == ["squeezenet"]


@in_bash
def test_a_real_bash_offers_what_the_program_answers(
    real: Complete, complete: Complete, known: Path, tmp_path: Path
) -> None:
    for name in ("qa.onnx", "q*.onnx"):
        (tmp_path / name).touch()
    for words, offered in (
        (("predict", "q"), []),
        (("predict", "--cache", known, "--on", "=", "th"), ["this-host"]),
        (("predict", "--cache", '""', "--effort", "q"), ["quick"]),
    ):
        assert real(*words) == complete(*words) == offered, words


def test_files_that_are_models_and_folders(complete: Complete, tmp_path: Path) -> None:
    for name in ("qa.onnx", "qb.ONNX", "qc.zip", "qd.txt", ".qe.onnx"):
        (tmp_path / name).touch()
    (tmp_path / "qf").mkdir()
    assert complete("predict", "q") == ["qa.onnx", "qb.ONNX", "qc.zip", "qf/"]
    assert complete("predict", "./q") == ["./qa.onnx", "./qb.ONNX", "./qc.zip", "./qf/"]
    assert complete("predict", tmp_path / "qa") == [str(tmp_path / "qa.onnx")]
    assert complete("predict", ".q") == [".qe.onnx"]
    assert complete("predict", "~/q", HOME=str(tmp_path))[0] == "~/qa.onnx"


def test_a_folder_alone_is_offered_with_what_is_in_it(complete: Complete, tmp_path: Path) -> None:
    (tmp_path / "qa").mkdir()
    assert complete("predict", "q") == ["qa/"]
    (tmp_path / "qa" / "model.onnx").touch()
    assert complete("predict", "q") == ["qa/", "qa/model.onnx"]
    assert complete("predict", "qa/") == ["qa/model.onnx"]


def test_names_that_mean_something_to_a_shell_are_left_to_it(
    complete: Complete, tmp_path: Path
) -> None:
    (tmp_path / "qa.onnx").touch()
    for name in ("q b.onnx", "q$(id).onnx", "q`id`.onnx", "q'.onnx", "q*.onnx"):
        (tmp_path / name).touch()
        assert complete("predict", "q") == [], name
        (tmp_path / name).unlink()
    assert complete("predict", "q") == ["qa.onnx"]


def test_folders_that_are_not_there_offer_nothing(complete: Complete) -> None:
    for start in ("nowhere/", "~nobody-here/", "/proc/1/", "$HOME/"):
        assert complete("predict", start + "zzz") == [], start


def test_systems_of_the_cache(complete: Complete, known: Path) -> None:
    for command in ("predict x", "zoo coverage", "advise", "cache export x"):
        words = command.split()
        assert complete(*words, "--on", "", BRICKS_CACHE=str(known)) == ["this-host"], command
        assert complete(*words, "--on", "other", BRICKS_CACHE=str(known)) == [], command
        assert complete(*words, "--cache", known, "--on", "th") == ["this-host"], command
        assert complete(*words, "--cache", known, "--on", "=", "th") == ["this-host"], command
    for command in ("set", "diff"):
        assert complete("systems", command, "", BRICKS_CACHE=str(known)) == ["this-host"], command


def test_a_cache_is_looked_for_where_commands_do(
    complete: Complete, known: Path, tmp_path: Path
) -> None:
    shutil.copytree(known, tmp_path / "cache")
    assert complete("predict", "--on", "") == ["this-host"]


def test_a_system_whose_name_is_not_plain_is_offered_by_its_key(
    complete: Complete, known: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(known, cache)
    with Bench(cache, runtime="fake") as bench:
        rename(bench, "it's $(id)")
    (offered,) = complete("predict", "--on", "")
    assert offered.startswith("s1-")


def test_a_cache_that_is_none_offers_nothing(complete: Complete, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert complete("predict", "--on", "") == []
    assert not cache.exists()
    cache.mkdir()
    for content in (b"", b"no database", b"SQLite format 3\x00" * 100):
        (cache / "bricks.sqlite").write_bytes(content)
        assert complete("predict", "--on", "") == [], content


def test_nothing_is_left_beside_a_cache(complete: Complete, known: Path) -> None:
    before = sorted(path.name for path in known.iterdir())
    assert complete("predict", "--on", "", BRICKS_CACHE=str(known))
    assert sorted(path.name for path in known.iterdir()) == before


def test_a_server_is_not_asked(complete: Complete) -> None:
    """One that takes connections and never answers: a shell would hang."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = f"postgresql+psycopg://bricks@127.0.0.1:{server.getsockname()[1]}/bricks"
        assert complete("predict", "--on", "", BRICKS_CACHE=address) == []
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_zoo_that_is_none_offers_nothing(complete: Complete, tmp_path: Path) -> None:
    (tmp_path / "qa.onnx").touch()
    assert complete("predict", "q", BRICKS_ZOO=str(tmp_path / "none")) == ["qa.onnx"]


def test_what_stands_before_is_not_done(complete: Complete) -> None:
    for words in (("--version",), ("--help",), ("-q", "-v")):
        offered = complete(*words, "")
        assert "predict" in offered, words
        assert not any(" " in line for line in offered), words


def test_an_empty_cache_option_is_no_reason_to_complain(complete: Complete) -> None:
    assert complete("predict", "--cache", '""', "--effort", "q") == ["quick"]


@in_bash
@pytest.mark.slow
def test_a_line_is_completed_where_it_is_typed(
    path: str, script: Path, known: Path, tmp_path: Path
) -> None:
    """The Tab key itself, in a bash on a terminal."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "my.onnx").touch()
    variables = plain(PATH=path, BRICKS_CACHE=str(known), PS1="$ ", HOME=str(tmp_path))
    words = ["bash", "--norc", "--noprofile", "-i"]
    with terminal(words, columns=200, variables=variables, folder=tmp_path) as bash:
        bash.type(f'. {script}; echo "rea"dy\n'.encode())
        bash.until("ready\r\n")
        bash.type(b"bricks pre\t")
        bash.until("bricks predict ")
        bash.type(b"squeezen\t")
        bash.until("squeezenet ")
        bash.type(b"fol\t")
        bash.until("der/")
        bash.type(b"m\t")
        bash.until("my.onnx ")
        bash.type(b"--effort=q\t")
        bash.until("--effort=quick ")
        bash.type(b"--on th\t")
        bash.until("--on this-host ")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_answered_too(asked: Asked, shell: str, known: Path) -> None:
    def ask(line: str) -> CommandResult:
        return asked(
            _BRICKS_COMPLETE=f"complete_{shell}",
            _TYPER_COMPLETE_ARGS=line,
            _TYPER_COMPLETE_FISH_ACTION="get-args",
            BRICKS_CACHE=str(known),
        )

    for line, offered in (
        ("bricks predict squeezen", "squeezenet"),
        ("bricks predict --effort q", "quick"),
        ("bricks predict --effort q", EFFORTS["quick"]),
        ("bricks predict --on ", "this-host"),
    ):
        done = ask(line)
        assert (done.status, done.err) == (0, "")
        assert offered in done.out
    script = asked(_BRICKS_COMPLETE=f"source_{shell}")
    assert (script.status, script.err) == (0, "")
    assert "_BRICKS_COMPLETE" in script.out


def test_nothing_heavy_is_imported_for_it() -> None:
    program = (
        "import sys\n"
        "from bricks.cli.main import run\n"
        "try:\n"
        "    run([])\n"
        "finally:\n"
        "    print(*(n for n in ('numpy', 'onnx', 'sqlalchemy', 'sqlite3', 'rich.markdown')"
        " if n in sys.modules), file=sys.stderr)\n"
    )
    variables = plain(
        _BRICKS_COMPLETE="complete_bash", COMP_WORDS="bricks\npredict\nsqueezen", COMP_CWORD="2"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=variables
    )
    assert (done.stdout, done.stderr.split()) == ("squeezenet\n", [])


def test_words_that_bash_splits_are_joined_before_the_cursor_alone() -> None:
    assert joined("bricks\n--effort\n=\nq", "3") == ("bricks\n--effort\nq", "2")
    assert joined("bricks\n--effort\n=", "2") == ("bricks\n--effort\n=", "2")
    assert joined("bricks\npre\n--a\n=\nb", "1") == ("bricks\npre\n--a\n=\nb", "1")
