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
from loadtests.setup import ROOT, Served, Setup

SHIPPED_NGINX = ROOT / "nginx.conf"

FILE_SERVER = """\
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
  access_log off;
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
    """Start an nginx of one worker that serves ``body`` as the file ``/top.json``."""
    port = free_port()
    folder = setup.programs.folder / f"nginx-file-{port}"
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "top.json").write_bytes(body)
    folder.chmod(0o755)
    setup.programs.folder.chmod(0o755)  # its worker runs as another user
    return _nginx(setup, f"nginx-file-{port}", FILE_SERVER.format(folder=folder, port=port), port)


def nginx_cached(setup: Setup, gateway: Served) -> Served:
    """Start the shipped nginx in front of a gateway: the file as it is, but for ports, paths and one worker."""
    if not SHIPPED_NGINX.exists():
        raise Missing("nginx.conf is not there")
    port = free_port()
    folder = setup.programs.folder / f"nginx-{port}"
    folder.mkdir()
    folder.chmod(0o777)
    setup.programs.folder.chmod(0o755)
    text = placed(SHIPPED_NGINX.read_text(), port=port, gateway_port=gateway.port, folder=folder)
    return _nginx(setup, f"nginx-{port}", text, port)


def placed(text: str, *, port: int, gateway_port: int, folder: Path) -> str:
    """Return the shipped nginx.conf moved to a port and a folder of its own, in front of this gateway."""
    text = re.sub(r"(?m)^(\s*listen\s+)(?!\[)[^;]*?;", rf"\g<1>{LOOPBACK}:{port};", text, count=1)
    text = re.sub(rf"(?m)^\s*listen\s+(?!127\.0\.0\.1:{port};)[^;]*;\n", "", text)
    text = re.sub(r"(?m)^(\s*server\s+)[\w.-]+:\d+", rf"\g<1>{LOOPBACK}:{gateway_port}", text)
    text = re.sub(r"(?m)^(\s*worker_processes\s+)\w+;", r"\g<1>1;", text)
    text = re.sub(r"(?m)^(\s*pid\s+)[^;]+;", rf"\g<1>{folder}/nginx.pid;", text)
    text = re.sub(r"(?m)^(\s*proxy_cache_path\s+)\S+", rf"\g<1>{folder}/cache", text)
    text = re.sub(r"(?m)^(\s*proxy_temp_path\s+)[^;]+;", rf"\g<1>{folder}/proxy;", text)
    text = re.sub(r"(?m)^(\s*access_log\s+)/\S+?(?=[\s;])", rf"\g<1>{folder}/access.log", text)
    return re.sub(r"(?m)^(\s*error_log\s+)/\S+?(?=[\s;])", rf"\g<1>{folder}/error.log", text)


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
        "-s", "malloc,64m", "-p", "http_max_hdr=96", port=port,
    )
    # fmt: on
    return Served(port, process, name=folder.name)


def edge_text(kind: str, gateway: Served) -> str:
    """Return what ``leaderboard-gateway edge`` prints for a running gateway's configuration."""
    command = [sys.executable, "-m", "gateway", "edge", kind, "--config", str(gateway.config)]
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
