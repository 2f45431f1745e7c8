import shlex
from pathlib import Path

import onnx
import pytest
from commands import Here
from factories import embedding_net, mlp, model, node, save, value

NAMELESS = model(
    [node("Relu", ["a b"], ["y"])], [value("a b", ["?", 3, "?", 8])], [value("y", None)]
)


def suggested(complaint: str) -> list[str]:
    """The words of the command in an error, after ``bricks``."""
    command = complaint.split(": try ", 1)[1].removesuffix(", or other sizes")
    program, *words = shlex.split(command)
    assert program == "bricks"
    return words


@pytest.mark.parametrize(
    "proto",
    [embedding_net(batch="B", tokens="T"), NAMELESS],
    ids=["symbols", "nameless"],
)
@pytest.mark.parametrize("command", ["decompose", "predict"])
def test_the_command_that_a_refusal_suggests_works_as_it_stands(
    here: Here, tmp_path: Path, proto: onnx.ModelProto, command: str
) -> None:
    refused = here(command, save(proto, tmp_path, "my model.onnx"), "--json")
    assert refused.status == 1
    done = here.plain(*suggested(refused.complaint))
    assert (done.status, done.err) == (0, "")
    assert done.json["models"][0]["model"] == "my model"


def test_options_that_were_given_stay_in_the_suggestion(here: Here, tmp_path: Path) -> None:
    path = save(NAMELESS, tmp_path)
    refused = here("decompose", path, "--json", "--shape", "a b=2x?x?x?", "--seed", 3)
    words = suggested(refused.complaint)
    assert words.count("--shape") == 1
    assert words[words.index("--shape") + 1] == "a b=2x3x224x8"
    assert words[words.index("--seed") + 1] == "3"
    assert here.plain(*words).status == 0


def test_of_several_models_the_suggestion_is_for_the_one_that_was_refused(
    here: Here, tmp_path: Path
) -> None:
    good, bad = save(mlp(), tmp_path, "good.onnx"), save(NAMELESS, tmp_path, "bad.onnx")
    words = suggested(here("decompose", good, bad, "--json").err.splitlines()[-1])
    assert str(good) not in words
    assert str(bad) in words


def test_of_a_folder_the_suggestion_names_the_file(here: Here, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    save(mlp(), folder, "good.onnx")
    bad = save(NAMELESS, folder, "bad.onnx")
    words = suggested(here("decompose", folder, "--json").err.splitlines()[-1])
    assert str(folder) not in words
    assert str(bad) in words
    assert here.plain(*words).status == 0
