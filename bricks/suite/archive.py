"""Archives of files: written reproducibly, and read as untrusted input.

The same content gives the same bytes. An archive may come from an untrusted source: this module
unpacks nothing to disk, treats names as lookup keys and never as paths, and enforces size limits
before it reads. Must not know what files mean.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bricks.closing import Closing
from bricks.errors import SuiteError

MANIFEST = "manifest.json"

# The epoch of zip files; every file gets this time stamp.
_BEGINNING = (1980, 1, 1, 0, 0, 0)

# Models and bricks in a suite have no weights: a larger file is invalid, or a zip bomb.
MAX_FILE_BYTES, _MAX_BYTES, MAX_FILES = 256 << 20, 4 << 30, 1_000_000


def write(path: Path, manifest: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Write ``files`` by name, and ``manifest`` with their digests, atomically.

    Files are stored uncompressed, because compressed bytes depend on the library's version.
    """
    digests = {name: hashlib.sha256(files[name]).hexdigest() for name in sorted(files)}
    manifest_text = json.dumps({**manifest, "files": digests}, indent=1, ensure_ascii=False)
    every = {**files, MANIFEST: manifest_text.encode() + b"\n"}
    part = path.with_name(path.name + ".part")
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
            for name in sorted(every):
                info = zipfile.ZipInfo(name, _BEGINNING)
                info.create_system, info.external_attr = 3, 0o644 << 16  # as on Unix, everywhere
                archive.writestr(info, every[name])
        os.replace(part, path)
    except OSError as exc:
        raise SuiteError(f"{path} cannot be written ({exc.strerror}): give another file") from exc
    finally:
        part.unlink(missing_ok=True)


class Archive(Closing):
    """An archive that is open for reading; a context manager.

    The manifest lists every other file with its SHA-256, which is checked when the file is read.
    """

    def __init__(self, path: Path) -> None:
        """Raises :class:`SuiteError` for a file that is not an archive of a suite."""
        self._path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except OSError as exc:
            raise SuiteError(f"{path} cannot be read ({exc.strerror}): give another file") from exc
        # The library raises these for archives that are damaged or use unsupported features.
        except (zipfile.BadZipFile, NotImplementedError, ValueError) as exc:
            raise SuiteError(f"{path} is cut off, or no suite: generate it again") from exc
        try:
            infos = self._zip.infolist()
            largest = max((info.file_size for info in infos), default=0)
            total = sum(info.file_size for info in infos)
            if len(infos) > MAX_FILES or largest > MAX_FILE_BYTES or total > _MAX_BYTES:
                raise SuiteError(
                    f"{self._path} holds {len(infos)} files of {total >> 20} MiB in all: that is no"
                    " suite, for those have no weights"
                )
            manifest = json.loads(self._content(MANIFEST))
            if not isinstance(manifest, dict):
                raise TypeError("no JSON object")
            self.manifest = manifest
            self._digests = {str(k): str(v) for k, v in dict(self.manifest["files"]).items()}
            self._check_names()
        except (KeyError, TypeError, ValueError) as exc:
            self._zip.close()
            raise SuiteError(f"{path} is no suite: its manifest cannot be read") from exc
        except SuiteError:
            self._zip.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    def read(self, name: str) -> bytes:
        """The content of a file; :class:`SuiteError` if its digest does not match."""
        content = self._content(name) if name in self._digests else None
        if content is None or hashlib.sha256(content).hexdigest() != self._digests[name]:
            raise self._altered(name)
        return content

    def _content(self, name: str) -> bytes:
        try:
            return self._zip.read(name)
        except Exception as exc:  # exceptions of decompressors have no common class
            raise self._altered(name) from exc

    def _altered(self, name: str) -> SuiteError:
        return SuiteError(
            f"{self._path}: its file {name} is missing or not as it was written: get it again"
        )

    def _check_names(self) -> None:
        """Check that each file occurs once, is listed in the manifest, and lies in the archive."""
        names = [info.filename for info in self._zip.infolist()]
        if sorted(names) != sorted([MANIFEST, *self._digests]):
            odd = sorted(set(names) ^ {MANIFEST, *self._digests})
            raise SuiteError(
                f"{self._path} holds other files than its manifest says"
                f" ({odd[0] if odd else 'one twice'}): get it again"
            )
        for name in names:
            parts = name.split("/")
            if name.startswith("/") or "\\" in name or ":" in name or {"", ".", ".."} & set(parts):
                raise SuiteError(
                    f"{self._path}: its file {name!r} is not in the archive's own folder: refused"
                )
