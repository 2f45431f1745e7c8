import shutil
from pathlib import Path

import pytest
from commands import Here
from factories import mlp, save
from rough import ROUGH

from bricks import Bench
from bricks.cli.commands import FORMER
from bricks.cli.main import root_command
from bricks.errors import nearest, suggestion


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return save(mlp(), tmp_path, "good.onnx")


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which that model is measured."""
    folder = tmp_path_factory.mktemp("known")
    with Bench(folder / "cache", runtime="fake", conditions=ROUGH) as bench:
        bench.measure([bench.read(save(mlp(), folder, "good.onnx"))])
    return folder / "cache"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("meassure",), "No such command 'meassure'. Did you mean 'measure'?"),
        (("cache", "exprt"), "No such command 'exprt'. Did you mean 'export'?"),
        (("zoo", "lst"), "No such command 'lst'. Did you mean 'list'?"),
        (("measure", "x", "--treads", 1), "No such option: --treads. Did you mean --threads?"),
        (("--verison",), "No such option: --verison. Did you mean --version?"),
        (("measure", "x", "--effort", "quik"), "no effort 'quik': did you mean quick?"),
        (("measure", "x", "--effort", "FULL"), "no effort 'FULL': did you mean full?"),
        (("measure", "x", "--effort", "zzz"), "'zzz': give one of full, balanced, quick"),
        (("measure", "x", "--runtime", "onnxrt"), "called 'onnxrt': did you mean onnxruntime?"),
        (("measure", "x", "--granularity", "executd"), "may follow: did you mean executed?"),
        (
            ("measure", "x", "--runtime", "onnxruntime", "--optimization", "exteded"),
            "no optimisation 'exteded': did you mean extended?",
        ),
        (("zoo", "list", "--task", "txt"), "--task 'txt' fits no model: did you mean text?"),
        (("zoo", "list", "--framework", "torch"), "fits no model: did you mean pytorch?"),
        (("backends", "install", "mxnt"), "called 'mxnt': did you mean mxnet?"),
    ],
)
def test_a_mistyped_word_is_wrong_usage_and_met_with_the_nearest(
    here: Here, words: tuple[str, ...], meant: str
) -> None:
    own = ("--cache", here.cache) if words[0] == "measure" else ()
    done = here.plain(*words, *own)
    assert done.status == 2
    assert meant in done.complaint
    assert done.out == ""


def test_only_the_nearest_option_is_named(here: Here) -> None:
    assert here.plain("predict", "x", "--efort", "x").complaint.count("--effort") == 1


def test_a_mistyped_system_is_met_with_the_nearest(here: Here, good: Path) -> None:
    here("measure", good)
    here.plain("systems", "set", _host(here), "--name", "office", "--cache", here.cache)
    for words in (("predict", good, "--on", "ofice"), ("zoo", "coverage", "--on", "ofice")):
        done = here(*words)
        assert done.status == 2
        assert "no ofice among the known systems (office): did you mean office?" in done.complaint
    done = here("predict", good, "--on", "zzz")
    assert done.complaint.startswith("no zzz among the known systems (office); measure it there: ")
    assert "--help" not in done.complaint


def _host(here: Here) -> str:
    facts = here.plain("systems", "--json", "--cache", here.cache).json
    key: str = facts["this_host"]["key"]
    return key


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("squeeznet", "did you mean squeezenet?"),
        ("ResNet50", "did you mean resnet50?"),
        ("goood.onnx", "did you mean good.onnx?"),
        ("sub/goood.onnx", "did you mean sub/good.onnx?"),
        ("sbu/", "did you mean sub?"),
        ("nowhere/good.onnx", "check the path"),
        ("something_else.onnx", "check the path"),
    ],
)
def test_a_mistyped_model_is_met_with_the_nearest(
    here: Here, known: Path, good: Path, monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    """One model of several that fails: the others are measured, and the status says so."""
    folder = good.parent
    (folder / "sub").mkdir()
    (folder / "sub" / "good.onnx").write_bytes(good.read_bytes())
    (folder / "good.txt").write_text("no model")
    monkeypatch.chdir(folder)
    shutil.copytree(known, here.cache)
    done = here("measure", name, "good.onnx")
    assert done.status == 1
    assert done.complaint.endswith(meant)
    assert " bricks of 1 model are measured" in done.out


def test_a_path_is_not_taken_for_what_no_model_is_called(here: Here, tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("no model")
    done = here("measure", tmp_path / "good.onnx")
    assert done.complaint.endswith("check the path")


def test_names_of_others_are_printable(here: Here, tmp_path: Path) -> None:
    save(mlp(), tmp_path, "go\x1bod.onnx")
    done = here("measure", tmp_path / "good.onnx")
    assert "\x1b" not in done.err
    assert done.complaint.endswith("go\\x1bod.onnx?")


def test_the_nearest_is_told_as_it_is_written() -> None:
    assert nearest("AMD", ["amd-epyc", "Amd"]) == "Amd"
    assert nearest("x", []) is None
    assert suggestion("zzz", ["a", "b", "a"]) == "choose one of a, b"
    many = [f"number {n}" for n in range(30)]
    assert suggestion("zzz", many).endswith("number 19 and 10 more")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("predict", "x.onnx", "--threads", "many"), "--threads many: 'many' is no whole number"),
        (("predict", "x.onnx", "--precision", "high"), "--precision: not a number"),
        (("measure", "x.onnx", "--threads", "0"), "--threads: at least 1 is needed"),
        (("cache", "export"), "Missing argument 'FILE'"),
        (("advise", "x.onnx", "--slo", "3"), "--slo '3' is no latency"),
    ],
)
def test_wrong_usage_is_told_plainly_and_points_to_the_help_of_its_command(
    here: Here, words: tuple[str, ...], problem: str
) -> None:
    done = here.plain(*words)
    command = "cache export" if words[0] == "cache" else words[0]
    assert done.status == 2
    assert problem in done.complaint and done.complaint.endswith(f"(try 'bricks {command} --help')")


@pytest.mark.parametrize(("former", "now"), [(name, words) for name, words in FORMER.items()])
def test_a_former_name_calls_the_command_and_is_not_listed(
    here: Here, former: str, now: tuple[str, ...]
) -> None:
    assert former not in list(root_command().commands)
    of_former, of_now = (here.plain(*words, "--help").out for words in ((former,), now))
    assert of_former.partition("\n")[2] == of_now.partition("\n")[2] != ""


def test_a_mistake_in_a_sweep_is_one_line(here: Here, good: Path) -> None:
    for words, status, problem in (
        (("--threads", "1,2", "--on", "nowhere"), 2, "no nowhere among the known systems"),
        (("--batch", "1,2", "--shape", "x=1", "--shape", "x=1"), 2, "gives input 'x' twice"),
    ):
        here("measure", good)
        done = here("predict", good, *words)
        assert (done.status, done.out) == (status, "")
        assert problem in done.complaint
