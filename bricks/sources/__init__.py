"""Sources of models: files, the zoo, suites, functions of programs, recordings, and memory.

Here because a word on a command line, an argument of the library and an address of the server name
models the same way. Must not know what is done with a model.
"""

from bricks.sources.files import InMemory, OnnxFile, SuiteFile
from bricks.sources.opening import (
    exactly_one,
    find,
    find_files,
    is_found,
    open,
    private_suite_error,
    read,
)
from bricks.sources.programs import (
    ZOO_FOLDER,
    Function,
    RecordedProgram,
    find_training_step,
    find_workload,
    function_of,
    is_program,
    recorded_program,
    zoo_of,
)
from bricks.sources.source import PrivateBricks, ReadOptions, ReadResult, Source, Unread

__all__ = [
    "ZOO_FOLDER", "Function", "InMemory", "OnnxFile", "PrivateBricks", "ReadOptions", "ReadResult",
    "RecordedProgram", "Source", "SuiteFile", "Unread", "exactly_one", "find", "find_files",
    "find_training_step", "find_workload", "function_of", "is_found", "is_program", "open",
    "private_suite_error", "read", "recorded_program", "zoo_of",
]  # fmt: skip
