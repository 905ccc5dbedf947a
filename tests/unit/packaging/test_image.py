"""What the image and the compose file say, held to the files and settings they name; needs no container engine."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from gateway import settings

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
INSTRUCTIONS = [
    tuple(line.split(maxsplit=1))
    for line in re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE)).splitlines()
    if line.strip()
]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())


def said(instruction: str) -> list[str]:
    return [rest for name, rest in INSTRUCTIONS if name == instruction]


def environment() -> dict[str, str]:
    return dict(word.split("=", 1) for line in said("ENV") for word in shlex.split(line))


def copied() -> list[str]:
    return [source for line in said("COPY") if not line.startswith("--from") for source in line.split()[:-1]]


def test_everything_that_is_copied_exists_and_is_let_through_to_the_build() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    for source in copied():
        assert (ROOT / source).exists()
        assert {f"!{source}", f"!{source}/**"} & set(ignored), f"{source} does not reach the build"


def test_the_packages_are_the_pinned_ones() -> None:
    installs = [command for line in said("RUN") for command in line.split("&&") if "pip install" in command]
    assert len(installs) == 3
    assert all(
        "-r requirements.txt" in line or "-c requirements-dev.txt" in line or "--no-deps" in line for line in installs
    )
    pins = (ROOT / "requirements.txt").read_text().splitlines()
    assert all("==" in pin for pin in pins)
    assert not any(pin.startswith("-") for pin in pins), "no index addresses"


def test_it_runs_as_an_ordinary_user_who_may_write_its_store_only() -> None:
    assert said("USER") == ["10001"]
    assert "useradd --system --uid 10001" in DOCKERFILE
    assert "install -d -o gateway -g gateway -m 750 /var/lib/leaderboard-gateway" in DOCKERFILE
    assert said("VOLUME") == ["/var/lib/leaderboard-gateway"]


def test_its_health_check_needs_no_program_but_python() -> None:
    [check] = said("HEALTHCHECK")
    program, flag, code = json.loads(check[check.index("[") :])
    assert (program, flag) == ("python3", "-c")
    compile(code, "health check", "exec")
    assert "/livez" in code
    assert "curl" not in DOCKERFILE.partition("FROM")[2]


def test_one_argument_runs_the_demo_and_none_serves() -> None:
    assert json.loads(said("ENTRYPOINT")[0]) == ["leaderboard-gateway"]
    assert json.loads(said("CMD")[0])[:2] == ["serve", "--config"]
    assert "redis-server" in DOCKERFILE.rpartition("FROM")[2], "the demo's Redis is in the final image"


def test_its_environment_opens_the_gateway_to_the_container_s_network_and_keeps_last_known_boards() -> None:
    read = settings.load(ROOT / "gateway.example.toml", environment())
    assert not read.warnings
    assert (read.server.host, read.server.port, read.server.admin) == ("0.0.0.0", 8080, "0.0.0.0:9464")
    assert read.last_known.store == "file:///var/lib/leaderboard-gateway"
    assert said("EXPOSE") == ["8080 9464"]


def test_compose_starts_redis_a_replica_the_gateway_and_nginx() -> None:
    services = COMPOSE["services"]
    assert {name for name, service in services.items() if "profiles" not in service} == {
        "redis",
        "replica",
        "gateway",
        "nginx",
    }
    assert services["replica"]["command"][1:4] == ["--replicaof", "redis", "6379"]


@pytest.mark.parametrize("name", ["gateway", "load"])
def test_compose_s_gateway_and_load_reach_redis_with_the_settings_that_are_mounted(name: str) -> None:
    service: dict[str, Any] = COMPOSE["services"][name]
    read = settings.load(ROOT / "gateway.example.toml", environment() | service["environment"])
    assert read.redis.primary == "redis://redis:6379/0"
    assert read.redis.replicas == ("redis://replica:6379/0",)
    assert any(mount.endswith(json.loads(said("CMD")[0])[2] + ":ro") for mount in service["volumes"])


def test_compose_mounts_files_that_exist_and_volumes_that_it_declares() -> None:
    for service in COMPOSE["services"].values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert (ROOT / source).is_file() if source.startswith(".") else source in COMPOSE["volumes"]


def test_the_port_that_compose_publishes_is_nginx_s_and_nginx_finds_the_gateway() -> None:
    nginx = (ROOT / "nginx.conf").read_text()
    [published] = COMPOSE["services"]["gateway"]["ports"]
    assert re.search(rf"^\s*listen\s+{published.split(':')[1]}\b", nginx, re.MULTILINE)
    assert COMPOSE["services"]["nginx"]["network_mode"] == "service:gateway"
    assert f"server 127.0.0.1:{environment()['GATEWAY_SERVER__PORT']};" in nginx


def test_compose_gives_the_gateway_time_to_stop() -> None:
    drain_s = settings.load(ROOT / "gateway.example.toml", environment()).server.drain_s
    assert int(COMPOSE["services"]["gateway"]["stop_grace_period"].removesuffix("s")) > drain_s + 3
