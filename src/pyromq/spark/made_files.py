"""Small directories that are made once for each origin and kept in the user's cache."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def made_directory(kind: str, origin: str, fill: Callable[[Path], None]) -> Path:
    """The directory of this kind for `origin`, filled by `fill` unless it is there already.

    Several programs may want it at the same time: each fills a draft, and the first one to finish wins.
    """
    cache = _cache()
    directory = cache / f"{kind}-{hashlib.sha256(origin.encode()).hexdigest()[:16]}"
    if directory.is_dir():
        return directory
    draft = Path(tempfile.mkdtemp(prefix=f"{kind}-draft-", dir=cache))
    fill(draft)
    draft.chmod(0o755)
    try:
        draft.rename(directory)
    except OSError:
        if not directory.is_dir():
            raise
        shutil.rmtree(draft)
    return directory


def _cache() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyromq" / "spark"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        if os.access(cache, os.W_OK):
            return cache
    except OSError:
        pass  # a user without a home gets a directory that no other user can have prepared
    return Path(tempfile.mkdtemp(prefix="pyromq-spark-"))
