"""Models written as PyTorch exports them: architectures of transformers, small and untrained.

    python tools/exported_models.py FOLDER

``exports.py`` runs this in an environment of its own, with torch and transformers. None of these
architectures is in the zoo. One that cannot be exported is an error.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as hf

Inputs = dict[str, torch.Tensor]


class FirstOutput(torch.nn.Module):
    """A model whose inputs are positional, and that returns its first output alone."""

    def __init__(self, model: torch.nn.Module, names: list[str], options: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.names, self.options = model, names, options

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        """The model's first output."""
        named = dict(zip(self.names, values, strict=True))
        return self.model(**named, return_dict=False, **self.options)[0]


def image(size: int) -> Inputs:
    """One colour picture."""
    return {"pixel_values": torch.randn(1, 3, size, size)}


def text(length: int) -> Inputs:
    """One text of so many tokens."""
    ids = torch.randint(0, 1000, (1, length))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def sound(length: int) -> Inputs:
    """One recording of so many samples."""
    return {"input_values": torch.randn(1, length)}


SMALL = {
    "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024,
}  # fmt: skip
PATCHES = {
    "hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 768,
}  # fmt: skip
UNCACHED = {"use_cache": False}

# Name: class, without Model and Config; options of its configuration; inputs; options of a call.
MODELS: dict[str, tuple[str, dict[str, Any], Callable[[], Inputs], dict[str, Any]]] = {
    "convnextv2": (
        "ConvNextV2",
        {"hidden_sizes": [48, 96, 192, 384], "depths": [2, 2, 6, 2]},
        lambda: image(224),
        {},
    ),
    "dinov2": (
        "Dinov2",
        {"hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 3, "image_size": 224},
        lambda: image(224),
        {},
    ),
    "swinv2": (
        "Swinv2",
        {"image_size": 192, "window_size": 6, "embed_dim": 48, "depths": [2] * 4,
         "num_heads": [2, 4, 8, 16]},
        lambda: image(192),
        {},
    ),
    "focalnet": (
        "FocalNet", {"embed_dim": 48, "depths": [2, 2, 4, 2]}, lambda: image(224), {},
    ),
    "cvt": (
        "Cvt",
        {"embed_dim": [32, 96, 192], "depth": [1, 2, 4], "num_heads": [1, 2, 3]},
        lambda: image(224),
        {},
    ),
    "bit": (
        "Bit",
        {"depths": [2] * 4, "hidden_sizes": [128, 256, 512, 1024]},
        lambda: image(224),
        {},
    ),
    "yolos": ("Yolos", {**PATCHES, "image_size": [224, 224]}, lambda: image(224), {}),
    "roberta": ("Roberta", {**SMALL, "vocab_size": 5000}, lambda: text(64), {}),
    "deberta_v2": (
        "DebertaV2",
        {**SMALL, "vocab_size": 5000, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
        lambda: text(48),
        {},
    ),
    "convbert": (
        "ConvBert", {**SMALL, "vocab_size": 5000, "embedding_size": 128}, lambda: text(64), {},
    ),
    "squeezebert": (
        "SqueezeBert", {**SMALL, "vocab_size": 5000, "embedding_size": 256}, lambda: text(64), {},
    ),
    "xlm_roberta": (
        "XLMRoberta",
        {"vocab_size": 8000, "hidden_size": 384, "num_hidden_layers": 3, "num_attention_heads": 6,
         "intermediate_size": 1536},
        lambda: text(32),
        {},
    ),
    "hubert": (
        "Hubert",
        {"hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4,
         "intermediate_size": 1024, "conv_dim": (96,) * 7, "num_conv_pos_embeddings": 32,
         "num_conv_pos_embedding_groups": 8},
        lambda: sound(16000),
        {},
    ),
    "qwen2": (
        "Qwen2",
        {**SMALL, "vocab_size": 4000, "num_key_value_heads": 2, "intermediate_size": 768},
        lambda: text(32),
        UNCACHED,
    ),
    "gpt_neox": (
        "GPTNeoX",
        {"vocab_size": 4000, "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
         "intermediate_size": 2048},
        lambda: text(16),
        UNCACHED,
    ),
    "mobilenet_v1_half": (
        "MobileNetV1", {"depth_multiplier": 0.5, "image_size": 192}, lambda: image(192), {},
    ),
    "pvt": (
        "Pvt", {"depths": [1, 1, 2, 1], "hidden_sizes": [32, 64, 160, 256]}, lambda: image(224), {},
    ),
    "data2vec_vision": (
        "Data2VecVision", {**PATCHES, "image_size": 224}, lambda: image(224), {},
    ),
}  # fmt: skip


def export(name: str, folder: Path) -> None:
    """Write ``FOLDER/NAME.onnx``, with weights from seed 0."""
    kind, config, draw, options = MODELS[name]
    torch.manual_seed(0)
    model = getattr(hf, f"{kind}Model")(getattr(hf, f"{kind}Config")(**config)).eval()
    inputs = draw()
    wrapped = FirstOutput(model, list(inputs), options)
    program = torch.onnx.export(
        wrapped,
        tuple(inputs.values()),
        input_names=list(inputs),
        opset_version=18,
        dynamo=True,
        verbose=False,
    )
    program.save(str(folder / f"{name}.onnx"), external_data=False)


def main() -> None:
    """Export all that the folder lacks."""
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    for name in MODELS:
        if not (folder / f"{name}.onnx").is_file():
            export(name, folder)


if __name__ == "__main__":
    main()
