"""The data of a portable suite, read from the archive that is running.

Must not know what the data mean to a runtime.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

from bricks.errors import SuiteError

MANIFEST, CONTENT = "manifest.json", "suite.json"


class SuiteData:
    """The files of the archive at ``path``, all of which have the digests of its manifest.

    ``digest`` is that of the manifest. Raises :class:`SuiteError` for altered or missing files.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._zip = zipfile.ZipFile(path)
            manifest = self._zip.read(MANIFEST)
            files = json.loads(manifest)["files"]
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as exc:
            raise SuiteError(f"{path} is cut off, or no portable suite: copy it again") from exc
        self.path, self.digest = path, hashlib.sha256(manifest).hexdigest()
        names = [name for name in self._zip.namelist() if name != MANIFEST]
        odd = sorted({*names} ^ {*files}) or [n for n in names if self._digest(n) != files[n]]
        if odd:
            raise SuiteError(
                f"{path}: its file {odd[0]} is not as it was written: copy the suite again"
            )
        self.content = self.json(CONTENT)

    def json(self, name: str) -> Any:
        """The content of a JSON file."""
        return json.loads(self._zip.read(name))

    def names(self, folder: str) -> list[str]:
        """The names of all files in a folder."""
        return [name for name in self._zip.namelist() if name.startswith(f"{folder}/")]

    def unpack(self, folder: str, into: Path) -> Path:
        """Write the files of ``folder`` below ``into``; return where they are."""
        self._zip.extractall(into, self.names(folder))
        return into / folder

    def _digest(self, name: str) -> str | None:
        try:
            return hashlib.sha256(self._zip.read(name)).hexdigest()
        except (zipfile.BadZipFile, OSError, ValueError):  # other bytes than were written
            return None
