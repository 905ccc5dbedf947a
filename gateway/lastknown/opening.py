"""Opening the store that a URL names.

Knows: the URL forms of ``[last_known] store`` and what each kind of store needs.
Must not know: when anything is saved.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gateway.clock import Clock
from gateway.lastknown.store import LastKnownStore

TIMEOUT_S = 5.0
"""Long for a store, short for a task that saves every ten seconds. Nobody's read waits for it."""


def open_store(url: str, *, clock: Clock, timeout_s: float = TIMEOUT_S) -> LastKnownStore | None:
    """Return the store at ``file:///…``, ``s3://bucket/prefix`` or ``postgresql://…``; None for ``none``.

    Nothing is connected to yet, so a store that is away is no error here. S3 takes its credentials, region and
    endpoint from the usual ``AWS_…`` variables (``AWS_ENDPOINT_URL`` for other services).
    Raise ``ValueError`` for any other URL.
    """
    parts = urlsplit(url)
    if url == "none":
        return None
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.strip("/"):
        return _folder(Path(unquote(parts.path)), clock, timeout_s)
    if parts.scheme == "s3" and parts.netloc:
        return _bucket(parts.netloc, unquote(parts.path).strip("/"), clock, timeout_s)
    if parts.scheme in ("postgresql", "postgres"):
        return _postgres(url, clock, timeout_s)
    raise ValueError("a store is 'none', file:///folder, s3://bucket/prefix or postgresql://host/database")


# A worker pays 1 to 5 MiB for each library: it loads the one that it uses.


def _folder(path: Path, clock: Clock, timeout_s: float) -> LastKnownStore:
    from gateway.lastknown.objects import ObjectStore, folder

    return ObjectStore(partial(folder, path, clock), clock=clock, timeout_s=timeout_s)


def _bucket(bucket: str, prefix: str, clock: Clock, timeout_s: float) -> LastKnownStore:
    from obstore.store import S3Store

    from gateway.lastknown.objects import ObjectStore

    # obstore retries ten times within three minutes unless told otherwise; one retry is all that fits here.
    # allow_http: who writes http:// into AWS_ENDPOINT_URL means it; without an endpoint it is https in any case.
    def connect() -> S3Store:
        return S3Store(
            bucket,
            prefix=prefix or None,
            client_options={
                "timeout": timedelta(seconds=timeout_s),
                "connect_timeout": timedelta(seconds=timeout_s / 2),
                "allow_http": True,
            },
            retry_config={"max_retries": 1, "retry_timeout": timedelta(seconds=timeout_s)},
        )

    return ObjectStore(connect, clock=clock, timeout_s=timeout_s)


def _postgres(url: str, clock: Clock, timeout_s: float) -> LastKnownStore:
    from gateway.lastknown.postgres import PostgresStore

    return PostgresStore(url, clock=clock, timeout_s=timeout_s)
