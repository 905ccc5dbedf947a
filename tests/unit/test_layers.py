"""The architecture's import rule, and how every module opens, read from the source itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LEVELS = {
    1: ["model", "errors", "clock", "counters", "periods", "placeholders", "settings"],
    2: [
        "freshness",
        "store",
        "encode",
        "rows",
        "jsontext",
        "coalesce",
        "boards",
        "scorefile",
        "excerpt",
        "loader",
        "fingerprint",
    ],
    3: ["readpath", "starting", "warming"],
    4: ["http", "replicas", "layouts", "telemetry", "logs", "lastknown", "archive", "sharedtier"],
    5: [
        "app",
        "cli",
        "__main__",
        "server",
        "check",
        "load",
        "demo",
        "edge_cli",
        "probe",
        "archive_cli",
        "terminal",
        "arguments",
    ],
}
LEVEL = {name: level for level, names in LEVELS.items() for name in names}

TOGETHER = {"layouts": "replicas", "archive": "lastknown"}
"""Adapters that count as one: a layout is written for the reads below it, the archive for the durable store below it,
never the other way round."""

FOREIGN = {
    "gateway.coalesce": {"gateway", "redis", "starlette"},
    "gateway.freshness": {"asyncio", "redis", "starlette", "gateway.clock"},
    "gateway.http": {"redis", "hiredis", "gateway.replicas", "gateway.layouts"},
    "gateway.replicas": {"starlette", "uvicorn", "httpx", "gateway.http", "gateway.freshness", "gateway.layouts"},
    "cdn": {"starlette", "redis", "hiredis", "gateway", "time", "datetime"},
}
"""What a package must not import, besides what its level says. ``gateway.coalesce`` may import itself."""


def sources(package: str) -> list[Path]:
    return sorted(path for path in (ROOT / package).rglob("*.py") if path.read_text().strip())


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """Yield all that a module imports, for type checking only included; ``a.b`` for ``from a import b``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part(module: str) -> str | None:
    """Return the top-level part of the gateway that a module belongs to: ``gateway.http.routes`` → ``http``."""
    names = module.split(".")
    return names[1] if names[0] == "gateway" and len(names) > 1 and names[1] != "__version__" else None


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


GATEWAY = [path for path in sources("gateway") if module_name(path) != "gateway"]
CDN = sources("cdn")


@pytest.mark.parametrize("path", GATEWAY, ids=module_name)
def test_imports_point_down_and_adapters_do_not_know_each_other(path: Path) -> None:
    own = part(module_name(path))
    assert own in LEVEL, f"{own} has no level: give it one above"
    for module in imports(path):
        other = part(module)
        if other is None or other == own:
            continue
        assert other in LEVEL, f"{module} has no level: give it one above"
        assert LEVEL[other] <= LEVEL[own], f"{module_name(path)} (level {LEVEL[own]}) imports {module}"
        if LEVEL[own] == 4 == LEVEL[other]:
            assert TOGETHER.get(own) == other, f"{module_name(path)} imports another adapter: {module}"


@pytest.mark.parametrize("path", GATEWAY + CDN, ids=module_name)
def test_each_package_stays_ignorant_of_what_it_must_not_know(path: Path) -> None:
    own = module_name(path)
    for package, forbidden in FOREIGN.items():
        if within(own, package):
            found = [
                name for name in imports(path) if not within(name, package) and any(within(name, f) for f in forbidden)
            ]
            assert not found, f"{own} must not import {found}"


@pytest.mark.parametrize("path", [*GATEWAY, *CDN, *sources("loadtests"), *sources("tests/servers")], ids=module_name)
def test_every_module_says_what_it_is_what_it_knows_and_what_it_must_not_know(path: Path) -> None:
    opening = ast.get_docstring(ast.parse(path.read_text())) or ""
    sentence = opening.partition("\n\n")[0]
    assert sentence.endswith("."), "a module opens with one sentence"
    assert "\nKnows: " in opening
    assert "\nMust not know: " in opening


@pytest.mark.parametrize("path", [*GATEWAY, *CDN], ids=module_name)
def test_no_module_is_longer_than_can_be_read_at_once(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


THREADS = {"threading", "concurrent", "multiprocessing", "asyncio.to_thread", "run_in_executor", "to_thread"}
KEPT_ON_THE_LOOP = ["cachetools", "gateway.store", "gateway.encode", "gateway.readpath", "gateway.coalesce"]


def words(path: Path) -> set[str]:
    """Return the names that a module imports, and the attributes that it uses."""
    tree = ast.parse(path.read_text())
    return set(imports(path)) | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def test_c12_nothing_off_the_event_loops_thread_can_touch_what_is_cached() -> None:
    """The maps that expire are not made for threads: the one thread in a gateway that answers is handed bytes."""
    threaded = {module_name(path): path for path in GATEWAY + CDN if words(path) & THREADS}
    commands = {"gateway.edge_cli", "gateway.demo.show"}
    assert set(threaded) == {"gateway.lastknown.objects"} | commands
    known = list(imports(threaded["gateway.lastknown.objects"]))
    assert not [name for name in known if any(within(name, kept) for kept in KEPT_ON_THE_LOOP)]
