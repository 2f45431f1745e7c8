"""The form of a model (ONNX model or recorded program), which decides on readers and runtimes.

A runtime accepts one form. Properties of a form are rows of tables in the modules that use them.
Every command imports this module, so it must not import onnx.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

# Prefix of the domain of a recorded call; the namespace of its operator follows.
DOMAIN = "org.pytorch."


class ModelForm(Enum):
    """The form of a model; values are the plural of its name."""

    MODELS = "ONNX models"  # whose activations share memory that is planned ahead
    PROGRAMS = "recorded programs"  # (bricks.graph.program) whose calls allocate their results

    @property
    def own_reference(self) -> bool:
        """Whether a model is its own reference: a program is run again in float64."""
        return self is ModelForm.PROGRAMS

    @property
    def synthetic_inputs(self) -> bool:
        """Whether unspecified inputs are synthetic; inputs of a program are as it was recorded."""
        return self is ModelForm.MODELS


def node_form(node: onnx.NodeProto) -> ModelForm:
    """Return the form of a model that contains ``node``."""
    return ModelForm.PROGRAMS if node.domain.startswith(DOMAIN) else ModelForm.MODELS


def nodes_form(nodes: Iterable[onnx.NodeProto]) -> ModelForm:
    """Return the form of a model of ``nodes``: with a call among them it is a program."""
    calls = any(node_form(node) is ModelForm.PROGRAMS for node in nodes)
    return ModelForm.PROGRAMS if calls else ModelForm.MODELS


def form_of(proto: onnx.ModelProto) -> ModelForm:
    """Return the form of a model, or of a brick."""
    return nodes_form(proto.graph.node)


def operator_title(qualified: str) -> str:
    """The short name of an operator: without its domain, and of a call without its overload.

    ``com.microsoft.nchwc.Conv`` is ``Conv``, ``org.pytorch.aten.slice.Tensor`` is ``slice``.
    """
    if qualified.startswith(DOMAIN):
        _, _, call = qualified.removeprefix(DOMAIN).partition(".")
        return call.partition(".")[0]
    return qualified.rpartition(".")[2]
