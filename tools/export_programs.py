"""Export PyTorch programs to ONNX, with their weights.

    python tools/export_programs.py FOLDER FILE.py:FUNCTION…

``benchmarks/same_model.py`` runs this in an environment with torch and onnxscript. Prints a JSON
object: of each program the file written, or why there is none.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch


def made(entry: str) -> dict[str, Any]:
    """What the function of ``entry`` returns."""
    path, _, name = entry.rpartition(":")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(Path(path).parent))
    spec.loader.exec_module(module)
    found: dict[str, Any] = getattr(module, name)()
    return found


def export(entry: str, folder: Path) -> str:
    """Write the program's forward pass; the path of the file."""
    torch.manual_seed(0)
    program = made(entry)
    path = folder / f"{entry.rpartition(':')[2]}.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.onnx.export(
            program["module"].eval(), tuple(program["inputs"]), dynamo=True, verbose=False
        )
        exported.save(str(path))
    return str(path)


def main() -> None:
    """Export each program; one that cannot be exported does not stop the others."""
    folder, found = Path(sys.argv[1]), {}
    for entry in sys.argv[2:]:
        try:
            found[entry] = {"file": export(entry, folder)}
        except Exception as error:  # the exporter raises any kind; the caller names it
            found[entry] = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
