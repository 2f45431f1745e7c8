"""The code of the child process: it owns the runtime and answers the supervisor's requests.

It is a process of its own because a runtime may crash, hang or exhaust memory. It must not know of
the store, nor of why something is run.
"""
