"""Where checkpoints are kept: one protocol (api.py), and a backend for each kind of storage."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from evertrain.checkpoint.storage.api import Storage
from evertrain.checkpoint.storage.posix import PosixStorage
from evertrain.checkpoint.storage.s3 import S3Storage
from evertrain.checkpoint.storage.s3_calls import Patience, S3Calls


def open_storage(url: str, *, fresh: bool = False) -> Storage:
    """The storage at ``url``: a path, ``file:///...``, or ``s3://bucket/prefix``.

    Opening touches nothing. With ``fresh`` reads come from the storage itself,
    past what this node has cached of it. Raises ValueError for a URL that
    cannot be one.
    """
    if "://" not in url:
        return PosixStorage(Path(url), fresh=fresh)
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise ValueError(f"{url}: a file URL is written file:///path")
        return PosixStorage(Path(unquote(parts.path)), fresh=fresh)
    if parts.scheme == "s3":
        return _open_s3(parts)
    raise ValueError(f"no storage for {parts.scheme}:// URLs; a path, file:///path or s3://bucket/prefix is one")


def _open_s3(parts: SplitResult) -> Storage:
    if parts.username or parts.password or parts.query or parts.fragment or not parts.netloc:
        # Not repeated here: it may hold a password.
        raise ValueError("an S3 URL is written s3://bucket/prefix; credentials come from the environment or a role")
    if find_spec("s3fs") is None:
        raise ValueError("s3:// URLs need the package s3fs: pip install 'evertrain[s3]'")
    return S3Storage(parts.netloc, parts.path.strip("/"), S3Calls(patience=Patience()))
