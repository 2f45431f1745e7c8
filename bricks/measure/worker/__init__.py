"""The code of the child process: it owns the runtime and answers the supervisor's requests.

It is a process of its own because a runtime may crash, hang or exhaust memory. It must not know of
the store, nor of why something is run.
"""

import os
import sys

# The first Python that runs this package as it is written.
_COMPLETE = 3, 10

if sys.version_info < _COMPLETE:  # before any other module of the package
    from bricks.measure.worker import older_python

    older_python.install()

from bricks.measure.protocol import PACKAGES  # noqa: E402

# Before anything else is imported, and last on the path: what the Python has itself comes first.
# Processes that a program starts inherit the variable, and may import this package too.
_packages = os.environ.get(PACKAGES)
if _packages is not None and _packages not in sys.path:
    sys.path.append(_packages)
