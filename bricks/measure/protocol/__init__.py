"""The protocol of supervisor and worker: typed requests and answers, as JSON lines on two pipes.

A request is a frozen dataclass, and its type names the type of its answer (:mod:`.request`). On the
pipe it is ``{"op": TYPE, …}`` with its fields; the answer is ``{"ok": …}`` or ``{"error": TEXT}``.
Before the answer, the worker may send lines ``{"at": N}``: step N is about to run.
Nothing is pickled, so a worker may live in another Python environment. Models travel as base64 of
their bytes, without weights. This package must not know how a request is answered.
"""
