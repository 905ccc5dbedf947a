"""A certificate authority and one server certificate for localhost, made by openssl.

Knows: openssl's command line.
Must not know: who uses them.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from tests.servers.process import need


class Certificates:
    """Three files: ``ca`` (to trust), ``cert`` and ``key`` (for servers named localhost or 127.0.0.1)."""

    def __init__(self) -> None:
        openssl = need("openssl")
        self.folder = Path(tempfile.mkdtemp(prefix="certificates-"))
        self.ca, self.cert, self.key = (self.folder / name for name in ("ca.pem", "cert.pem", "key.pem"))
        ca_key, request, extensions = (self.folder / name for name in ("ca.key", "request.pem", "extensions"))
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
        ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        authority = ["-subj", "/CN=test-ca", "-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        commands = [
            ["req", "-x509", *ec, "-keyout", ca_key, "-out", self.ca, "-days", "7", *authority],
            ["req", *ec, "-keyout", self.key, "-out", request, "-subj", "/CN=localhost"],
            ["x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "7",
             "-extfile", extensions, "-out", self.cert],
        ]  # fmt: skip
        for command in commands:
            subprocess.run([openssl, *map(str, command)], check=True, capture_output=True, timeout=30)

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
