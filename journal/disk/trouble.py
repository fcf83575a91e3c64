"""What RocksDB's error texts mean. rocksdict raises bare exceptions with these texts, and no other module reads them.

A copy may be deleted only if its files are damaged. Missing file descriptors, a full disk, or files of another user
prove no damage, although RocksDB calls some of these a "Corruption" too.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from journal.errors import LocalDamageError, LocalStorageError

_CORRUPTION = "Corruption"
_HELD = "lock hold by"
_MENDS = {
    errno.EMFILE: "allow this process more open files (ulimit -n)",
    errno.ENFILE: "allow this machine more open files (fs.file-max)",
    errno.ENOSPC: "make room on its disk",
    errno.EDQUOT: "make room in its user's quota",
    errno.EFBIG: "allow this process larger files (ulimit -f)",
    errno.EACCES: "let this process' user read and write it",
    errno.EPERM: "let this process' user read and write it",
    errno.EROFS: "let its disk be written",
    errno.ENOMEM: "give this process more memory",
    errno.EIO: "look at its disk; what can be read no more can be deleted, and is built anew",
}


def local_error(doing: str, directory: Path, error: Exception) -> LocalStorageError:
    """Our error for RocksDB's `error`, which an operation on the store in `directory` met. It is LocalDamageError if
    the files are not what was written, else LocalStorageError."""
    what = f"cannot {doing} {directory}: {error}"
    words = str(error).replace(str(directory), "")
    if _HELD in words:
        return LocalStorageError(f"{what}; another process, or another part of this one, has it")
    for code, mend in _MENDS.items():
        if os.strerror(code) in words:
            return LocalStorageError(f"{what}; {mend}: nothing was deleted")
    if words.startswith(_CORRUPTION) or os.strerror(errno.ENOENT) in words:
        return LocalDamageError(what)
    return LocalStorageError(what)
