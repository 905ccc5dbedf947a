"""The programs around the gateway: nginx as shipped, nginx serving a file, Varnish, webdis.

Knows: their command lines and configuration files.
Must not know: what is measured.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from loadtests.nodes import Node
from loadtests.programs import LOOPBACK, Missing, free_port, program
from loadtests.setup import Served, Setup

FILE_SERVER = """\
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
  access_log {folder}/access.log;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000000;
  open_file_cache max=100 inactive=60s;
  default_type application/json;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port}; root {folder}/files; }}
}}
"""


def nginx_file(setup: Setup, body: bytes) -> Served:
    """Start an nginx of one worker that serves ``body`` as the file ``/top.json``, and logs as nginx does."""
    port = free_port()
    folder = setup.programs.folder / f"nginx-file-{port}"
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "top.json").write_bytes(body)
    folder.chmod(0o755)
    setup.programs.folder.chmod(0o755)  # its worker runs as another user
    return _nginx(setup, f"nginx-file-{port}", FILE_SERVER.format(folder=folder, port=port), port)


def nginx_cached(setup: Setup, gateway: Served) -> Served:
    """Start nginx, one worker, with the file that is shipped: what ``edge nginx`` prints for a configuration."""
    port = free_port()
    folder = setup.programs.folder / f"nginx-{port}"
    folder.mkdir()
    folder.chmod(0o777)
    setup.programs.folder.chmod(0o755)
    # fmt: off
    text = edge_text("nginx", gateway, "--listen", f"{LOOPBACK}:{port}", "--listen-h2", "none",
                     "--state-dir", str(folder), "--access-log", str(folder / "access.log"))
    # fmt: on
    return _nginx(setup, folder.name, one_worker(text), port)


def one_worker(text: str) -> str:
    """Return an nginx configuration with a single worker; raise ``ValueError`` if it does not say how many."""
    single, found = re.subn(r"(?m)^(\s*worker_processes\s+)\w+;", r"\g<1>1;", text)
    if not found:
        raise ValueError("the configuration names no worker_processes")
    return single


def _nginx(setup: Setup, name: str, text: str, port: int) -> Served:
    conf = setup.programs.folder / f"{name}.conf"
    conf.write_text(text)
    command: list[str | Path] = [program("nginx"), "-c", conf, "-p", setup.programs.folder]
    if "daemon off" not in text:
        command += ["-g", "daemon off;"]
    return Served(port, setup.programs.start(name, *command, port=port), name=name)


def varnish(setup: Setup, gateway: Served) -> Served:
    """Start Varnish with the VCL that the gateway's own command prints for its configuration."""
    port = free_port()
    folder = setup.programs.folder / f"varnish-{port}"
    folder.mkdir()
    setup.programs.folder.chmod(0o755)
    vcl = setup.programs.folder / f"varnish-{port}.vcl"
    vcl.write_text(edge_text("varnish", gateway))
    # fmt: off
    process = setup.programs.start(
        folder.name, program("varnishd"), "-F", "-a", f"{LOOPBACK}:{port}", "-f", vcl, "-n", folder,
        "-s", "malloc,64m", port=port,
    )
    # fmt: on
    return Served(port, process, name=folder.name)


def edge_text(kind: str, gateway: Served, *options: str) -> str:
    """Return what ``leaderboard-gateway edge`` prints for a running gateway's configuration."""
    # fmt: off
    command = [sys.executable, "-m", "gateway", "edge", kind, "--config", str(gateway.config),
               "--origin", f"{LOOPBACK}:{gateway.port}", *options]
    # fmt: on
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode != 0:
        raise Missing(f"`edge {kind}` failed: {done.stderr.strip()[-300:]}")
    return done.stdout


def webdis(setup: Setup, node: Node) -> Served:
    """Start webdis, one thread, over one Redis node."""
    port = free_port()
    conf = setup.programs.folder / f"webdis-{port}.json"
    conf.write_text(
        json.dumps(
            {
                "redis_host": LOOPBACK,
                "redis_port": node.port,
                "http_host": LOOPBACK,
                "http_port": port,
                "threads": 1,
                "daemonize": False,
                "database": 0,
                "acl": [],
                "verbosity": 0,
                "logfile": str(setup.programs.folder / f"webdis-{port}.log"),
            }
        )
    )
    name = f"webdis-{port}"
    return Served(port, setup.programs.start(name, program("webdis"), conf, port=port), name=name)
