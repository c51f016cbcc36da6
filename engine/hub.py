"""Where treewise keeps what it downloads or derives, and how folders get there whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from treewise.data.errors import ChecksumError, SchemaVersionError
from treewise.data.whole_file import naming, sync

MANIFEST_NAME = "manifest.json"
MANIFEST_SCHEMA_VERSION = 1
HASH_BLOCK_BYTES = 1 << 20
PUBLISH_TRIES = 100
SMALL_FILE_BYTES = 8 << 20  # files up to here are hashed on every load, larger ones only checked for their size


def cache_home() -> Path:
    """The user's treewise folder: `TREEWISE_HOME`, else `treewise` in the platform's cache folder."""
    if home := os.environ.get("TREEWISE_HOME"):
        return Path(home).expanduser()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).expanduser() / "treewise"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "treewise"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "treewise" / "Cache"
    return Path.home() / ".cache" / "treewise"


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(HASH_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def write_atomically(path: Path, content: bytes) -> None:
    """Write one file under a temporary name, force it to disk, rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with naming(path), os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Give a temporary folder beside `target`; on success it becomes `target`, on failure nothing is left.

    An existing `target` is replaced. When another process publishes at the same moment, one of the two wins whole.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    try:
        with naming(target):
            yield temporary
        for path in sorted(temporary.rglob("*")):
            if path.is_file():
                sync(path)
        temporary.chmod(0o755)  # mkdtemp makes private folders; a shared cache is read by others
        _publish(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _publish(temporary: Path, target: Path) -> None:
    # rename(2) replaces only an empty folder: a full one is moved aside first, and deleted once the new one is in
    # place. Between any two of these calls another process may have done the same.
    replaced: list[Path] = []
    published = False
    try:
        for attempt in range(PUBLISH_TRIES):
            try:
                temporary.rename(target)
                published = True
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            aside = temporary.with_suffix(f".old{attempt}")
            try:
                target.rename(aside)
            except FileNotFoundError:
                continue
            replaced.append(aside)
        raise ChecksumError(f"{target} is being replaced by other processes again and again; try once more")
    finally:
        if replaced and not published:
            with suppress(OSError):  # the new folder did not come: the old one stays, unless another's came meanwhile
                replaced[-1].rename(target)
        for folder in replaced:
            shutil.rmtree(folder, ignore_errors=True)


def write_manifest(folder: Path, fields: Mapping[str, Any]) -> None:
    """Write `manifest.json` into `folder`: `fields`, and size and SHA-256 of every file that is there now."""
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST_NAME
    }
    manifest = {"schema_version": MANIFEST_SCHEMA_VERSION, **fields, "files": files}
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def read_manifest(folder: Path, *, full: bool = False) -> dict[str, Any]:
    """Read a folder's manifest and check the files against it.

    Sizes are checked always, hashes of files up to 8 MiB always, hashes of larger files when `full`.

    Raises:
        ChecksumError: a file is missing, or its bytes differ from what the manifest promises.
        SchemaVersionError: the manifest was written by another treewise.
    """
    cure = "delete the folder, or run the command that made it again"
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ChecksumError(f"{folder / MANIFEST_NAME} cannot be read ({error}); {cure}") from error
    if manifest.get("schema_version") != MANIFEST_SCHEMA_VERSION:
        raise SchemaVersionError(str(folder), manifest.get("schema_version"), MANIFEST_SCHEMA_VERSION, cure)
    files = manifest.get("files")
    if not isinstance(files, dict) or not all(isinstance(part, dict) for part in files.values()):
        raise ChecksumError(f"{folder / MANIFEST_NAME} must list its files, got {files!r}; {cure}")
    for name, promised in files.items():
        path = folder / name
        size = path.stat().st_size if path.is_file() else None
        if size is None or size != promised.get("bytes"):
            raise ChecksumError(f"{path} must be {promised.get('bytes')} bytes, got {size}; {cure}")
        if full or size <= SMALL_FILE_BYTES:
            found = file_sha256(path)
            if found != promised.get("sha256"):
                raise ChecksumError(f"{path} must have sha256 {promised.get('sha256')}, got {found}; {cure}")
    return manifest
