"""Checkpoints in a bucket of S3 or a server that speaks as it does (Ceph, MinIO, ...).

A commit is a conditional put (``If-None-Match: *``): the server decides who was
first. Servers of some years ago ignore the condition and overwrite, which would
undo the fencing of older writers without a word: so it is tried out once,
before the first commit.
"""

from __future__ import annotations

import builtins
import contextlib
import secrets
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from typing import Any, Final

from evertrain.checkpoint.manifest import MANIFEST_NAME
from evertrain.checkpoint.storage.ahead import read_ahead
from evertrain.checkpoint.storage.api import AlreadyThere, Missing, NotWritable, StorageError
from evertrain.checkpoint.storage.paths import file_parts_of, joined, parts_of
from evertrain.checkpoint.storage.s3_calls import S3Calls

PART_BYTES: Final = 16 << 20
PARTS_OF_A_SIZE: Final = 2000
"""Parts grow by :data:`PART_BYTES` after so many: the 10,000 that are allowed are then enough for 480 GB."""
RANGE_BYTES: Final = 8 << 20
RANGES_AT_ONCE: Final = 8
"""Each is a request, whose answer takes its time to begin."""
UPLOADS_AT_ONCE: Final = 4
REMOVALS_AT_ONCE: Final = 8
PROBE_PREFIX: Final = ".evertrain-probe-"


class S3Storage:
    """A prefix of a bucket."""

    def __init__(self, bucket: str, prefix: str, calls: S3Calls) -> None:
        parts_of(prefix)
        self._bucket = bucket
        self._prefix = prefix
        self._calls = calls
        self._conditional = False

    @property
    def url(self) -> str:
        """As ``s3://bucket/prefix``."""
        return f"s3://{joined(self._bucket, self._prefix)}"

    def write(self, path: str, data: Iterable[memoryview]) -> None:
        """See :meth:`Storage.write`. Nobody sees it before it is whole."""
        place = self._place(path)
        parts = _in_parts(data)
        start = list(islice(parts, 2))
        if len(start) < 2:
            self._call("put_object", path, **place, Body=b"".join(start))
            return
        upload = self._call("create_multipart_upload", path, **place)["UploadId"]
        try:
            sent = self._upload(path, upload, chain(start, parts))
            self._call("complete_multipart_upload", path, **place, UploadId=upload, MultipartUpload={"Parts": sent})
        except BaseException:
            with contextlib.suppress(StorageError):  # the bucket's lifecycle rule removes what stays
                self._call("abort_multipart_upload", path, **place, UploadId=upload)
            raise

    def create(self, path: str, data: bytes) -> None:
        """See :meth:`Storage.create`."""
        place = self._place(path)
        self._require_conditional_puts()
        try:
            self._call("put_object", path, **place, Body=data, IfNoneMatch="*")
        except AlreadyThere as err:
            # A try whose answer was lost may have been ours.
            if not self._has(path, data):
                raise AlreadyThere(
                    f"{self._where(path)}: is there already, with other content; it was not touched"
                ) from err

    def read(self, path: str, *, bytes_max: int) -> bytes:
        """See :meth:`Storage.read`."""
        data = self._range(path, 0, bytes_max + 1)
        if len(data) > bytes_max:
            raise ValueError(
                f"{self._where(path)}: more than {bytes_max} bytes, the most that a file of its kind may have"
            )
        return data

    def read_into(self, path: str, start: int, buffer: memoryview) -> None:
        """See :meth:`Storage.read_into`."""
        found = self._range(path, start, len(buffer)) if len(buffer) else b""
        if not len(buffer):
            self.size(path)
        if len(found) < len(buffer):
            raise EOFError(f"{self._where(path)}: ends at {start + len(found)}, {len(buffer) - len(found)} bytes early")
        buffer[:] = found

    def stream(self, path: str, size: int) -> Generator[memoryview, None, None]:
        """See :meth:`Storage.stream`."""
        fill = partial(self.read_into, path)
        return read_ahead(fill, size, piece_bytes=RANGE_BYTES, at_once=RANGES_AT_ONCE)

    def size(self, path: str) -> int:
        """See :meth:`Storage.size`."""
        place = self._place(path)
        try:
            return int(self._call("head_object", path, **place)["ContentLength"])
        except Missing:
            # The answer to HEAD has no code: it may be the bucket that is not there.
            self._call("list_objects_v2", "", Bucket=self._bucket, MaxKeys=1)
            raise

    def list(self, path: str) -> list[str]:
        """See :meth:`Storage.list`."""
        prefix = joined(self._prefix, *parts_of(path))
        prefix = f"{prefix}/" if prefix else ""
        names = set()
        for page in self._pages(path, prefix, Delimiter="/"):
            names |= {found["Prefix"].removeprefix(prefix).rstrip("/") for found in page.get("CommonPrefixes", [])}
            names |= {found["Key"].removeprefix(prefix) for found in page.get("Contents", [])}
        return sorted(name for name in names if name and not name.startswith(PROBE_PREFIX))

    def remove(self, path: str) -> None:
        """See :meth:`Storage.remove`."""
        whole = self._place(path)["Key"]
        keys = [found["Key"] for page in self._pages(path, f"{whole}/") for found in page.get("Contents", [])]
        markers = [key for key in keys if key.endswith(f"/{MANIFEST_NAME}")]
        with ThreadPoolExecutor(REMOVALS_AT_ONCE) as pool:
            for batch in (markers, [key for key in keys if key not in set(markers)], [whole]):
                deque(
                    pool.map(lambda key: self._call("delete_object", path, Bucket=self._bucket, Key=key), batch),
                    maxlen=0,
                )

    @property
    def files_at_once(self) -> int:
        """See :meth:`Storage.files_at_once`. Each request waits for its answer."""
        return 4

    def free_bytes(self) -> int | None:
        """A bucket cannot say."""
        return None

    def _where(self, path: str) -> str:
        return f"{self.url}/{path}" if path else self.url

    def _place(self, path: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": joined(self._prefix, *file_parts_of(path))}

    def _call(self, method: str, path: str, **arguments: Any) -> Any:
        return self._calls.call(method, self._where(path), **arguments)

    def _range(self, path: str, start: int, count: int) -> bytes:
        """Up to ``count`` bytes from ``start`` on: fewer at the end of the object, none past it."""
        place = self._place(path)
        wanted = f"bytes={start}-{start + count - 1}"
        return self._calls.get(self._where(path), **place, Range=wanted)

    def _pages(self, path: str, prefix: str, **arguments: str) -> Iterator[Any]:
        more: dict[str, str] = {}
        while True:
            page = self._call("list_objects_v2", path, Bucket=self._bucket, Prefix=prefix, **arguments, **more)
            yield page
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def _has(self, path: str, data: bytes) -> bool:
        try:
            return self.read(path, bytes_max=len(data)) == data
        except (ValueError, Missing):
            return False

    def _upload(self, path: str, upload: str, parts: Iterable[bytes]) -> builtins.list[dict[str, object]]:
        """Send the parts, some at once; what complete_multipart_upload wants to know of them."""
        place = self._place(path)
        sending: deque[tuple[int, Future[Any]]] = deque()
        sent: builtins.list[dict[str, object]] = []

        def take() -> None:
            number, answer = sending.popleft()
            sent.append({"PartNumber": number, "ETag": answer.result()["ETag"]})

        with ThreadPoolExecutor(UPLOADS_AT_ONCE) as pool:
            for number, part in enumerate(parts, start=1):
                if len(sending) >= UPLOADS_AT_ONCE:
                    take()
                call = pool.submit(
                    self._call, "upload_part", path, **place, UploadId=upload, PartNumber=number, Body=part
                )
                sending.append((number, call))
            while sending:
                take()
        return sent

    def _require_conditional_puts(self) -> None:
        """Raise NotWritable if the server overwrites although it was asked not to."""
        if self._conditional:
            return
        name = f"{PROBE_PREFIX}{secrets.token_hex(8)}"
        place = self._place(name)
        try:
            self._call("put_object", name, **place, Body=b"1", IfNoneMatch="*")
            self._call("put_object", name, **place, Body=b"2", IfNoneMatch="*")
        except AlreadyThere:
            self._conditional = True
        finally:
            self._call("delete_object", name, **place)
        if not self._conditional:
            raise NotWritable(
                f"{self.url}: the server ignores If-None-Match, by which commits are fenced; "
                "update it, or keep checkpoints elsewhere"
            )


def _in_parts(data: Iterable[memoryview]) -> Iterator[bytes]:
    """The bytes of all pieces, copied into parts to upload; the pieces are the caller's again at once."""
    part, number = bytearray(), 0
    for piece in data:
        rest = piece.cast("B")
        while rest:
            size = PART_BYTES * (1 + number // PARTS_OF_A_SIZE)
            taken, rest = rest[: size - len(part)], rest[size - len(part) :]
            part += taken
            if len(part) == size:
                yield bytes(part)
                part, number = bytearray(), number + 1
    if part:
        yield bytes(part)
