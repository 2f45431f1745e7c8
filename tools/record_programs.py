"""Record the zoo's PyTorch programs: each public function in models/torch/, without its weights.

    .venv/bin/python tools/record_programs.py [FUNCTION…]

Writes models/torch/NAME.onnx and the manifest beside them. Recording the same program again gives
the same file; a file that would change is written only with --replace.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

from bricks.backends import offer
from bricks.graph.program import origin_of, state_of
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of, parse_model, without_values
from bricks.operators.registry import flops
from bricks.sources import ZOO_FOLDER, Function, ReadOptions
from bricks.system import environments
from bricks.zoo import PROGRAMS, programs, put, zoo_folder

# The task of each file's programs.
TASKS = {
    "diffusion": "image generation",
    "graph_networks": "graphs",
    "images": "image classification",
    "language_models": "text",
    "recommendation": "recommendation",
    "segmentation": "image segmentation",
    "sequences": "sequences",
    "speech": "speech",
    "text": "text",
    "vision_transformers": "image classification",
}

# The family of each program, by what its name begins with.
FAMILIES = {
    "bert": "BERT",
    "conformer": "Conformer",
    "convnext": "ConvNeXt",
    "diffusion": "Diffusion U-Net",
    "dlrm": "DLRM",
    "gcn": "GCN",
    "gpt2": "GPT-2",
    "graphsage": "GraphSAGE",
    "gru": "GRU",
    "keyword_spotting": "DS-CNN",
    "llama": "Llama",
    "lstm": "LSTM",
    "mobilenet_v3": "MobileNet",
    "resnet44": "CIFAR ResNet",
    "resnet50": "ResNet",
    "t5": "T5",
    "two_tower": "Two towers",
    "unet": "U-Net",
    "vit": "ViT",
    "wav2vec2": "wav2vec 2.0",
    "wide_and_deep": "Wide & Deep",
}


def functions(folder: Path) -> Iterator[tuple[str, str]]:
    """File and name of each public function of the programs, without running any of it."""
    for path in sorted(folder.glob("*.py")):
        if path.stem not in TASKS:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield path.stem, node.name


def recorded(file: str, function: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The program, and its entry in the manifest but for the digest of its file."""
    code = f"{PROGRAMS}/{file}.py:{function}"
    model = Function(code, ZOO_FOLDER).record(ReadOptions(name=f"torch_{function}"))
    proto = parse_model(model.skeleton)
    origin, graph = origin_of(proto), graph_of(proto)
    assert origin is not None
    family = next(v for k, v in sorted(FAMILIES.items(), reverse=True) if function.startswith(k))
    sizes = {type_.size_bytes // max(type_.elements, 1) for type_ in without_values(proto).values()}
    if len(sizes) != 1:
        raise SystemExit(f"{code}: its weights are of several types: count its parameters here")
    return proto, {
        "name": model.name,
        "version": 1,
        "task": TASKS[file],
        "family": family,
        "framework": "pytorch",
        "source": f"PyTorch {origin.version}",
        "recipe": "record_programs",
        "inputs": {
            name: [type_.dtype, list(type_.shape)]
            for name, type_ in model.inputs
            if name.startswith("input") and isinstance(type_, TensorType)
        },
        "parameters": state_of(proto).sizes_bytes["parameters"] // sizes.pop(),
        "flops": flops(graph, range(len(graph.nodes))),
        "file": f"{model.name}.onnx",
        "kind": origin.kind,
        "code": code,
    }


def main() -> None:
    """Record what is named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("functions", nargs="*", help="Only these.")
    parser.add_argument(
        "--replace", action="store_true", help="Write files that have changed, too."
    )
    arguments = parser.parse_args()
    environment = offer("torch").environment
    assert environment is not None
    environments.install(environment, print)
    folder = zoo_folder() / PROGRAMS
    known = {entry.name: entry for entry in programs()}
    entries = []
    for file, function in functions(folder):
        if arguments.functions and function not in arguments.functions:
            continue
        proto, entry = recorded(file, function)
        content = proto.SerializeToString(deterministic=True)
        digest = hashlib.sha256(content).hexdigest()
        before = known.get(entry["name"])
        same = before is not None and before.sha256 == digest
        print(
            f"{entry['name']}: {len(proto.graph.node)} calls, {len(content) / 1e6:.2f} MB,"
            f" {'as before' if same else 'new' if before is None else 'CHANGED'}",
            flush=True,
        )
        if same or (before is not None and not arguments.replace):
            continue
        (folder / entry["file"]).write_bytes(content)
        entries.append({**entry, "sha256": digest})
    put(folder, entries)


if __name__ == "__main__":
    main()
