"""Calls of an S3-compatible server: one at a time, bounded, tried again while that may help, and their errors told.

Not for what is stored where (s3.py). The connection is s3fs's; its retries and
botocore's are off, so that a call's time is what :class:`Patience` says and not
the product of three loops. Credentials come from the environment or the node's
role and are in no text; of a server's error only the code is told.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from evertrain.checkpoint.storage.api import AlreadyThere, Missing, NotWritable, StorageError, StorageFull, Unreachable

CONNECTIONS_MAX: Final = 32
_BUSY: Final = frozenset({429, 500, 502, 503, 504})
_BUSY_CODES: Final = frozenset({"SlowDown", "RequestTimeout", "InternalError", "ConditionalRequestConflict"})
_FULL_CODES: Final = frozenset({"QuotaExceeded", "QuotaExceededException", "InsufficientStorage", "XMinioStorageFull"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long one call may take, and how long it is tried again."""

    connect_s: float = 5.0
    silence_s: float = 20.0
    """Without a byte from the server."""
    try_s: float = 60.0
    """One try, to the last byte."""
    budget_s: float = 120.0
    """From the first try on; no other begins after it."""
    pause_first_s: float = 0.1
    pause_max_s: float = 10.0


class S3Calls:
    """Makes calls; from any thread."""

    def __init__(
        self,
        *,
        patience: Patience,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._patience = patience
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._lock = threading.Lock()
        self._connected: Any = None

    def call(self, method: str, where: str, **arguments: Any) -> Any:
        """The server's answer to one of S3's operations, as botocore has it. Raises :class:`StorageError`."""
        system = self._system()
        return self._patiently(where, lambda: system._call_s3(method, **arguments))

    def get(self, where: str, **arguments: Any) -> bytes:
        """An object's content, or that of a range of it; empty if the range begins past its end.

        Raises :class:`StorageError`.
        """
        system = self._system()

        async def got() -> bytes:
            answer = await system._call_s3("get_object", **arguments)
            async with answer["Body"] as body:
                content: bytes = await body.read()
            return content

        try:
            found: bytes = self._patiently(where, got)
        except StorageError as err:
            if err.__cause__ is not None and _answer(err.__cause__)[0] == 416:
                return b""
            raise
        return found

    def _patiently(self, where: str, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """``work`` until it succeeds, fails for good, or the budget is spent."""
        from fsspec.asyn import sync

        began = self._clock()
        pause_s = self._patience.pause_first_s
        while True:
            try:
                return sync(self._system().loop, work, timeout=self._patience.try_s)
            except Exception as err:
                if not _may_pass(err):
                    raise told(err, where) from err
                spent_s = self._clock() - began
                # Every client that failed at the same moment would come back at the same moment.
                wait_s = pause_s * (0.5 + self._chance())
                if spent_s + wait_s > self._patience.budget_s:
                    raise Unreachable(f"{told(err, where)} (tried for {spent_s:.0f} s)") from err
            self._sleep(wait_s)
            pause_s = min(2 * pause_s, self._patience.pause_max_s)

    def _system(self) -> Any:
        with self._lock:
            if self._connected is None:
                self._connected = _connect(self._patience)
            return self._connected


def _connect(patience: Patience) -> Any:
    from s3fs import S3FileSystem

    system = S3FileSystem(
        skip_instance_cache=True,
        use_listings_cache=False,
        config_kwargs={
            "connect_timeout": patience.connect_s,
            "read_timeout": patience.silence_s,
            "retries": {"total_max_attempts": 1},
            "max_pool_connections": CONNECTIONS_MAX,
            # What botocore adds by default, servers of some years ago refuse; every byte has a digest of ours.
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        },
    )
    system.retries = 1
    return system


def _may_pass(err: Exception) -> bool:
    """Whether the same call may succeed a little later."""
    from botocore.exceptions import ConnectionError as NotConnected
    from s3fs.core import S3_RETRYABLE_ERRORS

    if isinstance(err, (*S3_RETRYABLE_ERRORS, NotConnected, ConnectionError, TimeoutError, EOFError)):
        return True
    status, code = _answer(err)
    return status in _BUSY or code in _BUSY_CODES


def _answer(err: BaseException) -> tuple[int, str]:
    """HTTP status and error code of a server's answer; (0, "") if it is none."""
    from botocore.exceptions import ClientError

    for each in (err, err.__cause__):
        if isinstance(each, ClientError):
            status = int(each.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            return status, str(each.response.get("Error", {}).get("Code", ""))
    return 0, ""


def told(err: Exception, where: str) -> StorageError:
    """``err`` as an error of a storage; ``where`` is what it happened to."""
    from botocore.exceptions import NoCredentialsError, PartialCredentialsError

    status, code = _answer(err)
    if isinstance(err, NoCredentialsError | PartialCredentialsError):
        return Unreachable(
            f"{where}: no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the node a role"
        )
    if not status:
        return Unreachable(f"{where}: {_silence(err)}; see AWS_ENDPOINT_URL_S3 and the network")
    answer = f"{status} {code}" if code and code != str(status) else str(status)
    if code == "NoSuchBucket":
        return Unreachable(f"{where}: the bucket is not there ({answer}); create it, or correct the URL")
    if status == 404:
        return Missing(f"{where}: is not there ({answer})")
    if status == 412:
        return AlreadyThere(f"{where}: is there already ({answer}); it was not touched")
    if code in _FULL_CODES or status == 507:
        return StorageFull(f"{where}: the server has no room or the quota is used up ({answer})")
    if status in (401, 403):
        return NotWritable(f"{where}: the server refuses ({answer}); see the credentials and the bucket's policy")
    if status in _BUSY or code in _BUSY_CODES:
        return Unreachable(f"{where}: the server is overloaded or broken ({answer})")
    return StorageError(f"{where}: the server does not take the request ({answer})")


def _silence(err: Exception) -> str:
    """What happened when no answer came, by the error's kind: its text may hold more than a log should."""
    name = type(err).__name__
    if "Timeout" in name:
        return f"no answer in time ({name})"
    if "Connect" in name:
        return f"cannot connect ({name})"
    return f"the connection broke ({name})"
