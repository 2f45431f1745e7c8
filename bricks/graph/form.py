"""The form in which a model is written: it decides on reading, runtimes and references.

A runtime accepts one form. Whatever differs between forms stands in a table by form, beside what it
is about; new forms are new rows. Light, since each command reads what runtimes accept: must not
import onnx.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

# The domain of a node that is a recorded call begins so; the namespace of its operator follows.
DOMAIN = "org.pytorch."


class ModelForm(Enum):
    """The form in which models are written; values are the plural of their name."""

    MODELS = "ONNX models"  # whose activations share memory that is planned ahead
    PROGRAMS = "recorded programs"  # (bricks.graph.program) whose calls allocate their results

    @property
    def own_reference(self) -> bool:
        """Whether a model is its own reference: a program is called again in doubles."""
        return self is ModelForm.PROGRAMS

    @property
    def invented_inputs(self) -> bool:
        """Whether inputs are made up; those of a program hold what they hold in it."""
        return self is ModelForm.MODELS


def node_form(node: onnx.NodeProto) -> ModelForm:
    """The form of models that have such nodes."""
    return ModelForm.PROGRAMS if node.domain.startswith(DOMAIN) else ModelForm.MODELS


def nodes_form(nodes: Iterable[onnx.NodeProto]) -> ModelForm:
    """The form of a model with these ``nodes``: a program has calls among them."""
    calls = any(node_form(node) is ModelForm.PROGRAMS for node in nodes)
    return ModelForm.PROGRAMS if calls else ModelForm.MODELS


def form_of(proto: onnx.ModelProto) -> ModelForm:
    """The form of a model, or of a brick."""
    return nodes_form(proto.graph.node)
