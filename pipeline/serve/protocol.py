"""HTTP as uvicorn speaks it, without patience for requests that do not arrive."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

PATIENCE = 20.0  # seconds
_USUAL = 512


def _most_connections() -> int:
    """Half of the files that a process may open, 512 at most: where none is left, asyncio tells so without end."""
    try:
        import resource  # not on Windows
    except ImportError:
        return _USUAL
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _USUAL if files == resource.RLIM_INFINITY else min(_USUAL, files // 2)


MOST_CONNECTIONS = _most_connections()
"""Connections at a time; further ones are closed."""


class InTime(H11Protocol):
    """Closes a connection on which no head of a request, or nothing more of its body, has arrived for `PATIENCE`.

    Else as many half-open requests as may be connected at a time would keep all others out. More than
    `MOST_CONNECTIONS` are closed at once.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
            return
        self._waits_since = self._last_bytes = self.loop.time()
        self.loop.call_later(PATIENCE / 2, self._look)

    def data_received(self, data: bytes) -> None:
        """Go on."""
        self._last_bytes = self.loop.time()
        super().data_received(data)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self._waits_since = self.loop.time()
        super().on_response_complete()

    def _look(self) -> None:
        """Close the connection, or look again later."""
        if self.transport.is_closing():
            return
        since = {h11.IDLE: self._waits_since, h11.SEND_BODY: self._last_bytes}.get(self.conn.their_state)
        if since is not None and self.loop.time() - since > PATIENCE:
            self.transport.abort()
        else:
            self.loop.call_later(PATIENCE / 2, self._look)
