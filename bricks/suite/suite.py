"""A suite, a portable benchmark: models without weights, the granularity, and the bricks.

The graph that a runtime executes depends on the processor. So a suite holds the models, and the
host that measures it decomposes them again, which takes a tenth of a second per model. The bricks
in a suite are those of the host that wrote it, for inspection or for use with other tools.

A private suite holds bricks alone, which have no names, no weights and no neighbours. Text in them
can still identify a model (labels in attributes or constants, names of custom operators), so it is
refused. The set of bricks can too, so decoys are mixed in. Must not know how anything is measured.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
from onnx import defs
from onnx.helper import find_min_ir_version_for

from bricks.decompose.identity import mismatch
from bricks.decompose.plan import Brick, Decomposition
from bricks.errors import ModelError, SuiteError, first_line, later_format
from bricks.graph.model_metadata import specified_values
from bricks.graph.payload import all_tensors, is_referenced
from bricks.graph.program import strip_code_location
from bricks.graph.topology import all_nodes, default_domain
from bricks.graph.view import graph_of, parse_model
from bricks.reading.read import read_model
from bricks.suite.archive import Archive, write

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.system import Runtime

FORMAT, VERSION = "bricks-suite", 1

# Before this IR version, every weight had to be an input too.
_OLDEST_IR = 4

_README = """\
# A suite of bricks

{models} models without weights, cut at granularity {granularity} into {bricks} different bricks,
each a runnable network; together they occur {occurrences} times. Made by bricks {package} with
{backend} {version}.

Measure it: `bricks measure suite.zip`. Then `bricks cache export results.jsonl` writes what was
measured into one file, and `bricks cache import results.jsonl` takes that in elsewhere.

- `manifest.json`: what is in here, with the SHA-256 of every file
- `models/`: the models (ONNX); their weights are declared, and are nowhere
- `models.json`: of each model, by its digest, how often each brick counts in it, as it was where
  the suite was made. Where it is measured, models are cut anew: what a runtime executes depends on
  the processor.
- `bricks/`: each brick by its key (ONNX); weights are declared, and may be any numbers
- `bricks.json`: of each brick its operators, operations (FLOPs), bytes of weights, the types of its
  inputs, weights and outputs, and what inputs must hold that steer the work

docs/formats.md of the package describes all of it.
"""

_PRIVATE_README = """\
# A suite of bricks

{bricks} bricks, each a runnable network without weights. Made by bricks {package} with {backend}
{version}.

Measure it: `bricks measure suite.zip`. Then `bricks cache export results.jsonl` writes what was
measured into one file, which is to go back to where the suite came from.

- `manifest.json`: the SHA-256 of every file
- `bricks/`: each brick by its key (ONNX); weights are declared, and may be any numbers
- `bricks.json`: of each brick its operators, operations (FLOPs), bytes of weights, the types of its
  inputs, weights and outputs, and what inputs must hold that steer the work

docs/formats.md of the package describes all of it.
"""

# The operators of these domains are public.
_PUBLIC = frozenset(("", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc"))
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# The equation of Einsum consists of letters that stand for dimensions.
_EQUATION = re.compile(r"[A-Za-z,.> -]*")
_LONGEST_EQUATION = 64


@dataclass(frozen=True, slots=True)
class Suite:
    """The contents of a suite: ``models`` without weights, to be cut at ``granularity``.

    A private suite holds ``bricks`` instead, whose models are unknown.
    """

    models: tuple[Model, ...]
    granularity: str
    bricks: tuple[Brick, ...] = ()


def write_suite(
    path: Path,
    decomposed: Sequence[tuple[Model, Decomposition]],
    *,
    runtime: Runtime,
    granularity: str,
    package: str,
) -> None:
    """Write a suite of decomposed models; the same models give the same bytes.

    Models that differ only in their names are written once, under the first name.
    """
    models = {model.digest: (model, decomposition) for model, decomposition in reversed(decomposed)}
    bricks = {key: brick for _, d in models.values() for key, brick in d.bricks.items()}
    files: dict[str, bytes] = {}
    for digest, (model, _) in models.items():
        files[f"models/{digest}.onnx"] = pack_model(model)
    files |= _files_of(bricks)
    # Counts instead of plans: the runtime may save nodes in another order the next time.
    counts = {digest: d.plan.counts for digest, (_, d) in sorted(models.items())}
    files["models.json"] = _json({digest: dict(sorted(n.items())) for digest, n in counts.items()})
    names = sorted((model.name, digest) for digest, (model, _) in models.items())
    manifest = _manifest_of(runtime, granularity, package)
    manifest["models"] = [{"name": name, "digest": digest} for name, digest in names]
    readme = _README.format(
        models=len(models),
        bricks=len(bricks),
        occurrences=sum(len(d.plan.occurrences) for _, d in models.values()),
        granularity=granularity,
        package=package,
        backend=runtime.backend,
        version=runtime.version,
    )
    write(path, manifest, {**files, "README.md": readme.encode()})


def write_private_suite(
    path: Path, bricks: Mapping[str, Brick], *, runtime: Runtime, granularity: str, package: str
) -> None:
    """Write a suite of ``bricks`` that does not identify their models.

    Raises :class:`SuiteError` for a brick that contains text specific to its model.
    """
    refuse_identifying_text(bricks.values())
    readme = _PRIVATE_README.format(
        bricks=len(bricks),
        package=package,
        backend=runtime.backend,
        version=runtime.version,
    )
    files = {**_files_of(bricks), "README.md": readme.encode()}
    write(path, _manifest_of(runtime, granularity, package), files)


def _files_of(bricks: Mapping[str, Brick]) -> dict[str, bytes]:
    files = {f"bricks/{key}.onnx": _portable(brick.model) for key, brick in bricks.items()}
    facts = {
        key: {**bricks[key].to_json(), "weight_bytes": bricks[key].numeric_weight_bytes}
        for key in sorted(bricks)
    }
    return {**files, "bricks.json": _json(facts)}


def _portable(model: bytes) -> bytes:
    """A brick in the oldest version of the file format that has its operators.

    In a cache, a brick has the version of the first model that it was cut from.
    """
    proto = parse_model(model)
    imports = list(proto.opset_import)
    proto.ir_version = max(_OLDEST_IR, find_min_ir_version_for(imports, ignore_unknown=True))
    written: bytes = proto.SerializeToString(deterministic=True)
    return written


def _manifest_of(runtime: Runtime, granularity: str, package: str) -> dict[str, Any]:
    return {
        "format": {"name": FORMAT, "version": VERSION, "package": package},
        "granularity": granularity,
        "runtime": {"backend": runtime.backend, "version": runtime.version},
    }


def read_suite(path: Path) -> Suite:
    """The suite in an archive; :class:`SuiteError` for any other file, or an altered suite."""
    with Archive(path) as archive:
        try:
            form = archive.manifest["format"]
            name, version = form["name"], int(form["version"])
            private = "models" not in archive.manifest
            named = archive.manifest.get("models", [])
            listed = [(str(m["name"]), str(m["digest"])) for m in named]
            granularity = str(archive.manifest["granularity"])
        except (KeyError, TypeError, ValueError) as exc:
            raise SuiteError(f"{path} is no suite: its manifest cannot be read") from exc
        if name != FORMAT:
            raise SuiteError(f"{path} is no suite of bricks: give one that 'bricks generate' wrote")
        if version > VERSION:
            raise SuiteError(later_format(path, version, VERSION))
        models = [
            unpack_model(str(path), name, digest, archive.read(f"models/{digest}.onnx"))
            for name, digest in listed
        ]
        bricks = _bricks(path, archive) if private else []
    return Suite(tuple(models), granularity, tuple(bricks))


def _bricks(path: Path, archive: Archive) -> list[Brick]:
    """The bricks of a private suite, each checked against its key and its fields."""
    bricks = []
    try:
        for key, facts in json.loads(archive.read("bricks.json")).items():
            brick = Brick.from_json(key, archive.read(f"bricks/{key}.onnx"), facts)
            problem = mismatch(brick)
            if problem is not None:
                raise ValueError(problem)
            bricks.append(brick)
    except (ModelError, AttributeError, LookupError, TypeError, ValueError) as exc:
        raise SuiteError(f"{path}: a brick in it is refused: {first_line(exc)}") from exc
    return bricks


def pack_model(model: Model) -> bytes:
    """A model serialised for a suite: without its weights, and without their file locations."""
    proto = parse_model(model.skeleton)
    for tensor in all_tensors(proto.graph):
        if is_referenced(tensor):
            del tensor.external_data[:]
            tensor.external_data.add(key="location", value="weights")
    strip_code_location(proto)
    written: bytes = proto.SerializeToString(deterministic=True)
    return written


def unpack_model(source: str, name: str, digest: str, skeleton: bytes) -> Model:
    """A model from a suite, validated as untrusted input.

    Raises SuiteError, which names ``source``, unless the model's digest is ``digest``.
    """
    with tempfile.TemporaryDirectory(prefix="bricks-") as folder:
        file = Path(folder) / "model.onnx"
        file.write_bytes(skeleton)
        try:
            proto = parse_model(skeleton)
            given = specified_values(proto, graph_of(proto).types)
            model = read_model(file, values=given, name=name)
        except (ModelError, LookupError, TypeError, ValueError) as exc:
            raise SuiteError(f"{source}: the model {name} in it is refused: {exc}") from exc
    if model.digest != digest:
        raise SuiteError(
            f"{source}: the model {name} in it is not the one that its digest stands for"
        )
    return model


def _json(data: object) -> bytes:
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return text.encode() + b"\n"


def refuse_identifying_text(bricks: Iterable[Brick]) -> None:
    """Raise :class:`SuiteError` for a brick that contains text specific to its model."""
    for brick in bricks:
        for text in _identifying_text(brick):
            raise SuiteError(
                f"a brick ({', '.join(brick.operators)}) holds {text}, which tells of its model:"
                " leave that out of a private suite, or generate it without --private"
            )


def _identifying_text(brick: Brick) -> Iterator[str]:
    """Text of a brick that is not public vocabulary, described in words."""
    proto = parse_model(brick.model)
    for node in all_nodes(proto.graph):
        if default_domain(node.domain) not in _PUBLIC:
            yield f"an operator of the domain '{node.domain}'"
        for attribute in node.attribute:
            for text in _texts(attribute):
                equation = node.op_type == "Einsum" and attribute.name == "equation"
                harmless = text in _public_words() or not text
                if equation and len(text) <= _LONGEST_EQUATION:
                    harmless = _EQUATION.fullmatch(text) is not None
                if not harmless:
                    yield f"the text '{text[:40]}'"
    for tensor in proto.graph.initializer:
        if tensor.string_data:
            yield "texts"
    for values in brick.examples.values():
        if any(isinstance(value, str) for value in values):
            yield "texts"


def _texts(attribute: onnx.AttributeProto) -> Iterator[str]:
    """All text of an attribute; the text of subgraphs is found through their nodes."""
    for raw in (attribute.s, *attribute.strings, *attribute.t.string_data):
        yield raw.decode("utf-8", "replace")
    for tensor in attribute.tensors:
        yield from (raw.decode("utf-8", "replace") for raw in tensor.string_data)


@cache
def _public_words() -> frozenset[str]:
    """The operators of ONNX, and the words in the descriptions of their attributes."""
    schemas = defs.get_all_schemas_with_history()
    words = {schema.name for schema in schemas}
    for attribute in (attribute for schema in schemas for attribute in schema.attributes.values()):
        words.update(_WORD.findall(attribute.description))
        words.add(attribute.default_value.s.decode())
    return frozenset(words)


def decoys(
    own: Mapping[str, Brick], others: Iterable[Mapping[str, Brick]], count: int
) -> dict[str, Brick]:
    """``count`` bricks of the models ``others`` that are not in ``own``."""
    chosen: dict[str, Brick] = {}
    for model in others:
        for key in sorted(model.keys() - own.keys()):
            if len(chosen) == count:
                return chosen
            chosen[key] = model[key]
        if len(chosen) == count:
            return chosen
    raise SuiteError(
        f"there are no {count} bricks to mix in, only {len(chosen)}: give fewer --decoys"
    )
