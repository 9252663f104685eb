"""The process that serves the stores which ranks meet at. It never forks, so its stores' threads hurt nobody.

A store is open before any worker is forked. A rank that finds no store yet
waits for half a second before it tries again (torch's backoff), so a store
that rank 0 opens itself would cost every start that. Each generation gets a
store of its own: nothing of an earlier one can be read.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import TYPE_CHECKING, Final, assert_never

from evertrain.contract.wire import Decoder, encode
from evertrain.launcher.messages import CloseStore, KeeperWord, OpenStore, StoreFailed, StoreOpen

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined] # by a star import

STORE_TIMEOUT: Final = timedelta(seconds=10)
RECEIVE_BYTES: Final = 1 << 16


def keep_stores(control: socket.socket) -> None:
    """Serve stores as the launcher says, until it hangs up."""
    stores: dict[int, TCPStore] = {}
    decoder = Decoder(OpenStore, CloseStore)
    while data := control.recv(RECEIVE_BYTES):
        for message in decoder.feed(data):
            match message:
                case OpenStore(port=port):
                    control.sendall(encode(_open(stores, port)))
                case CloseStore(port=port):
                    stores.pop(port, None)
                case _:
                    assert_never(message)


def _open(stores: dict[int, TCPStore], port: int) -> KeeperWord:
    from torch.distributed import TCPStore  # type: ignore[attr-defined] # by a star import

    try:
        # Served on all addresses; the one given here is only where this process itself connects to.
        store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, timeout=STORE_TIMEOUT)
    except (RuntimeError, ValueError) as err:
        return StoreFailed(asked=port, error=str(err).partition("\n")[0])
    stores[store.port] = store
    return StoreOpen(asked=port, port=store.port)
