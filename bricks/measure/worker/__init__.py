"""What runs in the child process: it owns the runtime, and answers what the supervisor asks.

Here because a runtime may crash, hang or exhaust memory. Must not know of the store, nor of why
something is run.
"""
