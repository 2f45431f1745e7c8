"""The code of the child process: it owns the runtime and answers the supervisor's requests.

It is a process of its own because a runtime may crash, hang or exhaust memory. It must not know of
the store, nor of why something is run.
"""

import os
import sys

from bricks.measure.protocol.pipe import PACKAGES

# Before anything else is imported, and last on the path: what the Python has itself comes first.
# Processes that a program starts inherit the variable, and may import this package too.
_packages = os.environ.get(PACKAGES)
if _packages is not None and _packages not in sys.path:
    sys.path.append(_packages)
