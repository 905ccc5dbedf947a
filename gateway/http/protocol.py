"""Protocol: uvicorn's httptools protocol, with what the parser refuses answered as everything else is.

Knows: uvicorn's protocol class, the parser's errors, how a connection ends without a reset.
Must not know: routes, leaderboards, what an accepted request means.

uvicorn answers what its parser refuses in plain text, in front of whatever is still being answered, keeps request heads
of any length in memory and for any time, takes trailers for fields of the head, cuts a target at ``#``, and waits for
ever once anything but a head arrived, or for a client that does not read. Here a refusal is a problem document, takes
its turn behind the requests before it, and ends the connection. What the client still sends is then read and thrown
away for a moment: closing with unread bytes makes the kernel send a reset, which can overtake the answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from gateway.errors import GatewayError, InvalidParameter, MethodNotAllowed, UriTooLong
from gateway.http.answers import CLOSE, WHOLE, Answer, Peer
from gateway.http.exchange import TRANSPORT

TARGET_LIMIT_BYTES = 64 * 1024 - 1
"""The longest target that the parser can split (it keeps places in 16 bits); the application's own limit is lower."""

HEAD_LIMIT_BYTES = 64 * 1024
"""How much of one head may arrive after the chunk it began in; a chunk is 256 KiB at most."""

BODY_LIMIT_BYTES = 1024 * 1024
"""How much of one body, its chunks' heads and trailers included, is read to come to the next request."""

HEADERS_LIMIT = 128
PIPELINE_LIMIT = 64
"""Requests that wait behind the one being answered; a client that sends more has to ask for the rest again."""

HEAD_TIMEOUT_S = 30.0
READER_TIMEOUT_S = 60.0
"""How long answers wait for a client that does not read them."""

LINGER_S = 1.0

HOST = re.compile(
    rb"(?:\[(?:[0-9A-Fa-f:.]+|[Vv][0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\]"
    rb"|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?[ \t]*"
)
"""What a Host field may hold, nothing included (RFC 9110 §7.2, RFC 3986 §3.2.2). The parser leaves spaces behind it."""

Refuse = Callable[[GatewayError, Peer], Answer]


class _Trailers(list[tuple[bytes, bytes]]):
    """Where fields go that come behind a body: nowhere, for they mean nothing here, and there is no end to them."""

    def append(self, _field: tuple[bytes, bytes]) -> None:
        """Forget a field."""


_TRAILERS = _Trailers()
_VERSIONS = frozenset({"1.1", "1.0"})
_MALFORMED = InvalidParameter("The request is not well-formed HTTP/1.1.")


class GatewayProtocol(HttpToolsProtocol):
    """One connection. The configured application's ``refuse`` says what a refused request is answered with."""

    _long_url: bytearray | None = None
    _head_open = False
    """Whether the request line or headers are arriving."""
    _in_body = False
    _began = False
    """Whether the head or body that is arriving began in the chunk that is being parsed."""
    _part_bytes = 0
    """How much of the head or body that is arriving came after the chunk it began in."""
    _deaf = False
    """Whether what still arrives is thrown away."""
    _refusal: GatewayError | None = None
    _deadline: asyncio.TimerHandle | None = None
    _reader_deadline: asyncio.TimerHandle | None = None
    _running: RequestResponseCycle | None = None
    """The request that is being answered; others may be lined up behind it."""
    _dated: list[tuple[bytes, bytes]] | None = None
    _date = b""
    _host = b""
    """The last Host found to be one: a connection's requests nearly always say the same."""

    # --- the connection -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a first request."""
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everyone whose answer was on its way; uvicorn tells only the request that arrived last."""
        self._stop_waiting()
        if self._reader_deadline is not None:
            self._reader_deadline.cancel()
        for cycle in (self._running, *(waiting for waiting, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)
        if self._running is not None:
            scope: Any = self._running.scope
            scope["extensions"].pop(WHOLE, None)  # a connection's last request would keep it, and be kept by it

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, unless the connection is already ending."""
        if self._deaf:
            return
        self._began = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Answered in HTTP/1.1 as if it had not been asked (RFC 9110 §7.8). Whether a body follows the parser
            # cannot tell, so this answer is the connection's last: see on_headers_complete.
            self._deaf = True
        except httptools.HttpParserError as error:
            # What does not begin with a letter is not HTTP at all: a TLS handshake, most often.
            self._refuse(self._refusal or (_parser_refusal(error) if data[:1].isalpha() else _MALFORMED))
        else:
            if self._head_open or self._in_body:
                self._count(0 if self._began else len(data))

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer what was asked by a client that has no more to ask, and end; end at once if nothing was.

        A client that is gone looks the same until something is sent to it.
        """
        self._stop_waiting()
        self._wait_for_reader()
        last = self.cycle
        if last is None or last.response_complete:
            return False
        last.keep_alive = False
        return True

    def _count(self, arrived_bytes: int) -> None:
        self._part_bytes += arrived_bytes
        if self._part_bytes > (BODY_LIMIT_BYTES if self._in_body else HEAD_LIMIT_BYTES):
            self._refuse(InvalidParameter(f"The request's head is over {HEAD_LIMIT_BYTES // 1024} KiB."))
        elif self._head_open and self._deadline is None:
            self._wait_for_head()

    def _wait_for_head(self) -> None:
        self._deadline = self.loop.call_later(HEAD_TIMEOUT_S, self.timeout_keep_alive_handler)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # --- clients that do not read -------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Wait for the client to read, for a while."""
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        """Go on; a connection that is to end still has its last bytes to get rid of."""
        super().resume_writing()
        ends = self.transport.is_closing() or not self.cycle.keep_alive
        if self._reader_deadline is not None and not ends:
            self._reader_deadline.cancel()
            self._reader_deadline = None

    def timeout_keep_alive_handler(self) -> None:
        """Close, but wait for the client to read what was sent for a while only: a transport would wait for ever."""
        if not self.transport.is_closing():
            self._wait_for_reader()
            self.transport.close()

    def _wait_for_reader(self) -> None:
        if self._reader_deadline is None:
            self._reader_deadline = self.loop.call_later(READER_TIMEOUT_S, self.transport.abort)

    def linger(self) -> None:
        """Say that nothing more will come, and close once the client had a moment to read what did."""
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.timeout_keep_alive_handler)

    # --- the parser's callbacks ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        # Only a head ends the time for idling: neither what is left of a body nor empty lines are a request.
        self._unset_keepalive_if_required()
        self._in_body = False
        self._long_url = None
        self._head_open = self._began = True
        self._part_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target: nearly always all of it."""
        if not self.url:
            self.url = url
        elif self._long_url is None:
            self._long_url = bytearray(self.url + url)
        else:
            self._long_url += url  # in place: bytes would be copied whole for every byte that dribbles in
        if len(url if self._long_url is None else self._long_url) > TARGET_LIMIT_BYTES:
            raise self._refused(UriTooLong())

    def on_headers_complete(self) -> None:
        """Check the target's form, then let uvicorn start the request or line it up."""
        self._head_open = False
        if self._deadline is not None:
            self._stop_waiting()
        if self._long_url is not None:
            self.url = bytes(self._long_url)
        if self.url[:1] != b"/":
            self.url = self._origin_form(self.url)
        if b"#" in self.url:
            # The parser would take what follows for a fragment and cut the id short: two members would be one.
            raise self._refused(InvalidParameter("A request target has no fragment; # in an id is written %23."))
        self._check_fields()
        if self.timeout_keep_alive_task is not None:  # an answer set it since the head began
            self._unset_keepalive_if_required()
        super().on_headers_complete()
        self.headers = _TRAILERS
        self._in_body = self._began = True
        self._part_bytes = 0
        cycle = self.cycle
        scope: Any = self.scope
        # Not the cycle, which knows the scope: a ring would keep every request until the collector finds it.
        scope["extensions"] = {TRANSPORT: self.transport, WHOLE: self.send_whole}
        if self.expect_100_continue or self.parser.should_upgrade():
            # The answer does not wait for a body that may or may not follow: after it, nobody knows what bytes mean.
            cycle.keep_alive = False
        if len(self.pipeline) >= PIPELINE_LIMIT:
            cycle.keep_alive = False
            self._deaf = True
        if not cycle.keep_alive:
            self._wait_for_reader()

    def on_message_complete(self) -> None:
        """End a request."""
        self._in_body = False
        super().on_message_complete()

    def _check_fields(self) -> None:
        if len(self.headers) > HEADERS_LIMIT:
            raise self._refused(InvalidParameter(f"A request has at most {HEADERS_LIMIT} header fields."))
        version = self.parser.get_http_version()
        if version not in _VERSIONS:  # the parser lets 0.9 and 2.0 pass
            raise self._refused(InvalidParameter("Only HTTP/1.1 and HTTP/1.0 are understood here."))
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) != 1:
            if not hosts and version == "1.0":
                return
            # RFC 9112 §3.2. A proxy that goes by another of the two would hold the answer for the wrong site.
            raise self._refused(InvalidParameter("A request has exactly one Host field."))
        if hosts[0] != self._host:
            if HOST.fullmatch(hosts[0]) is None:
                raise self._refused(InvalidParameter("The Host field is not a host with or without a port."))
            self._host = hosts[0]

    def _origin_form(self, url: bytes) -> bytes:
        """Return the target without scheme and host (RFC 9112 §3.2.2), and ``/*`` for ``OPTIONS *`` (§3.2.4)."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            raise self._refused(MethodNotAllowed())
        if url == b"*":
            return b"/*"
        parsed = httptools.parse_url(url)
        path = parsed.path or b"/"
        fragment = b"" if parsed.fragment is None else b"#" + parsed.fragment
        return path + (b"" if parsed.query is None else b"?" + parsed.query) + fragment

    # --- answers in one go --------------------------------------------------------------------------------------------

    def send_whole(self, head: bytes, body: bytes) -> bool:
        """Send a whole answer to the request that is being answered; return False if it has to be sent as messages.

        ``head`` is status line and fields, all valid; date and empty line are added. Two messages are two writes, two
        system calls, and a check of every field by expression: for a small answer more than all else together.
        What uvicorn's cycle does with the messages of an answer that keeps its connection is done here in its order.
        """
        cycle = self._running
        if (
            cycle is None
            or cycle.response_started
            or not cycle.keep_alive
            or cycle.disconnected
            or self.flow.write_paused
            or self.transport.is_closing()
        ):
            return False
        defaults = self.server_state.default_headers
        if defaults is not self._dated:
            self._dated = defaults
            self._date = b"".join(b"%b: %b\r\n" % field for field in defaults) + b"\r\n"
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        self.transport.write(head + self._date + body)
        cycle.response_complete = True
        cycle.message_event.set()
        cycle.on_response()
        return True

    # --- refusals -----------------------------------------------------------------------------------------------------

    def _refused(self, error: GatewayError) -> GatewayError:
        """Note why, for ``data_received``: the parser wraps what its callbacks raise."""
        self._refusal = error
        return error

    def _refuse(self, error: GatewayError) -> None:
        """Answer a refused request in its turn, and hear nothing more."""
        self._deaf = True
        self._stop_waiting()
        if self._in_body:
            self._end_after_body()
            return
        answer: Refuse = self.config.app.refuse  # type: ignore[union-attr]
        before = self.cycle
        refusal = Refusal(self, answer(error, self.client), head_only=self.parser.get_method() == b"HEAD")
        self.cycle = refusal  # type: ignore[assignment]
        if before is None or before.response_complete:
            refusal.write()
        else:
            self.pipeline.appendleft((refusal, self.app))  # type: ignore[arg-type]

    def _end_after_body(self) -> None:
        """A body that cannot be read belongs to a request that is, or was, answered: only the connection ends."""
        if self.cycle.response_complete:
            self._unset_keepalive_if_required()
            self.linger()
        else:
            self.cycle.keep_alive = False
            self._wait_for_reader()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle if isinstance(cycle, RequestResponseCycle) else None
        super()._start_asgi_task(cycle, app)


class Refusal:
    """A refused request in the place of a request's cycle: it takes its turn, writes, and lingers."""

    def __init__(self, protocol: GatewayProtocol, answer: Answer, *, head_only: bool) -> None:
        self._protocol = protocol
        self._answer = answer
        self._head_only = head_only
        self.message_event = asyncio.Event()
        self.keep_alive = False
        self.disconnected = False
        self.response_complete = False

    async def run_asgi(self, _app: object) -> None:
        """Take its turn in the pipeline."""
        self.write()

    def write(self) -> None:
        """Write the answer, and close once the client had a moment to read it."""
        self.response_complete = True
        transport = self._protocol.transport
        if self.disconnected or transport.is_closing():
            return
        answer = self._answer
        fields = [*self._protocol.server_state.default_headers, *answer.headers, CLOSE]
        lines = b"".join(b"%b: %b\r\n" % field for field in fields)
        transport.write(STATUS_LINE[answer.status] + lines + b"\r\n" + (b"" if self._head_only else answer.content))
        self._protocol.linger()


def _parser_refusal(error: Exception) -> GatewayError:
    if isinstance(error, httptools.HttpParserCallbackError) and isinstance(error.__context__, Exception):
        return _parser_refusal(error.__context__)
    if isinstance(error, httptools.HttpParserInvalidMethodError):
        return MethodNotAllowed()
    if isinstance(error, httptools.HttpParserInvalidURLError):
        return InvalidParameter("The request target is not ASCII, or not a target at all; percent-encode it.")
    return _MALFORMED
