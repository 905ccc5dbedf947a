"""Protocol: uvicorn's httptools protocol, with what the parser refuses answered as everything else is.

Knows: uvicorn's protocol class, the parser's errors, how a connection ends without a reset.
Must not know: routes, leaderboards, what an accepted request means.

uvicorn answers refused requests in plain text and in front of whatever is still being answered, keeps request lines and
headers of any length in memory, and cuts a target at ``#``. Here a refusal is a problem document, takes its turn
behind the requests before it, and ends the connection; what the client still sends is read and thrown away for a moment,
since closing with unread bytes makes the kernel send a reset, which can overtake the answer.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.errors import GatewayError, InvalidParameter, MethodNotAllowed, UriTooLong
from gateway.http.exchange import CYCLE

TARGET_LIMIT_BYTES = 64 * 1024
"""What the parser takes of a target; between 16 KiB and this the application says 414."""
HEADERS_LIMIT_BYTES = 64 * 1024
LINGER_S = 1.0


class GatewayProtocol(HttpToolsProtocol):
    """One connection. A class attribute of a subclass, or of the configuration's, may set what counts refusals."""
