"""Models quantised to 8 bits by ONNX Runtime's own tool.

The tool runs sessions of its own, which cannot share a process with those of a backend. Its
warnings are about its own deprecations, so they are not shown. Must not know how models are read.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from onnxruntime import quantization
from onnxruntime.quantization.registry import IntegerOpsRegistry

from bricks.backends.quantising import QuantisationMethod
from bricks.errors import BackendError, first_line

# The first version of ONNX with a scale for each channel of a weight.
_CHANNELS = 13

# Dynamically quantised convolutions are slower than those of floats.
_NOT_DYNAMIC = frozenset(("Conv",))


def quantise(
    source: Path, target: Path, method: QuantisationMethod, samples: Sequence[Mapping[str, Any]]
) -> None:
    """Write the model in ``source`` to ``target``, quantised.

    See :class:`bricks.backends.quantising.Quantiser`. The graph is first optimised as the tool
    recommends, so that normalisations are part of convolutions. Activations are unsigned, weights
    are signed, with a scale for each channel.
    """
    prepared = target.with_name("prepared.onnx")
    with _quiet():
        quantization.quant_pre_process(source, prepared, skip_symbolic_shape=True)
        if method is QuantisationMethod.DYNAMIC:
            kinds = sorted(IntegerOpsRegistry.keys() - _NOT_DYNAMIC)
            quantization.quantize_dynamic(prepared, target, op_types_to_quantize=kinds)
            return
        imports = onnx.load(prepared, load_external_data=False).opset_import
        own = [each.version for each in imports if each.domain in ("", "ai.onnx")]
        quantization.quantize_static(
            prepared,
            target,
            _Samples(samples),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            per_channel=max(own, default=0) >= _CHANNELS,
        )


class _Samples(quantization.CalibrationDataReader):  # type: ignore[misc]  # its package has no types
    """Hands ``samples`` to the tool, one by one."""

    def __init__(self, samples: Sequence[Mapping[str, Any]]) -> None:
        self._left = [dict(sample) for sample in samples]

    def get_next(self) -> dict[str, Any] | None:
        """The next sample; None after the last one."""
        return self._left.pop() if self._left else None


@contextmanager
def _quiet() -> Iterator[None]:
    """Show no warnings and no log of the tool, and its errors as :class:`BackendError`."""
    ort.set_default_logger_severity(4)
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as exc:  # the tool raises various errors
        raise BackendError(f"onnxruntime's tool cannot quantise it: {first_line(exc)}") from exc
    finally:
        logging.disable(before)
