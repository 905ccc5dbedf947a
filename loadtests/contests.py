"""The contests of the comparison: who runs against whom, and what the contract asks of each.

Knows: the routes, the baselines, the edges, and the ratios that are asked for.
Must not know: wrk, or how a ratio is made of readings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

from gateway.layouts.scripts import SCRIPTS
from loadtests import edges
from loadtests.answers import Prepared
from loadtests.config import GatewayConfig
from loadtests.contest import Contender, Contest, Line, Value, why_missing
from loadtests.programs import Missing, frozen
from loadtests.setup import Served, Setup, prepared
from loadtests.wrk import Shot

LARGE, SMALL = "large", "small"
MEMBERS = {SMALL: 10_000, LARGE: 1_000_000}
TOP = f"/v1/leaderboards/{LARGE}/top"
MEMBER = f"/v1/leaderboards/{LARGE}/members/pkg-{{}}"
NEIGHBORS = f"{MEMBER}/neighbors"
BOARD = f"/v1/leaderboards/{LARGE}"
RANKS = f"{BOARD}/ranks?from=101&to=200"
BATCH = f"{BOARD}/members?" + "&".join(f"member=pkg-{number}" for number in range(20))
ROWS = b'"entries":['


class Asked(NamedTuple):
    """One line that the contract has, or that is measured beside it."""

    key: str
    what: str
    of: str
    against: str
    ratio: float | None = None
    value: Value = "per_second"


@dataclass(slots=True)
class Bench:
    """The servers that several contests share, each started when first needed."""

    setup: Setup
    large: int = MEMBERS[LARGE]
    only: Collection[str] = ()
    """Keys of the lines that are wanted; none: all. Contenders that no wanted line needs are not started."""
    _gateway: Served | None = None
    _broken: str = ""

    def gateway(self) -> Served:
        """Return the gateway under measurement: one worker, two boards."""
        if self._broken:
            raise Missing(self._broken)
        if self._gateway is None:
            self.setup.board(SMALL, MEMBERS[SMALL])
            self.setup.board(LARGE, self.large)
            try:
                self._gateway = self.setup.gateway(GatewayConfig(boards=[LARGE, SMALL]))
            except (RuntimeError, TimeoutError) as error:
                self._broken = f"the gateway does not start: {error}"  # not to be waited for by every contest
                raise
        return self._gateway

    def another(self, **keys: object) -> Served:
        """Start one more gateway over the same boards."""
        self.gateway()
        return self.setup.gateway(GatewayConfig(boards=[LARGE, SMALL], **keys))  # type: ignore[arg-type]

    def like(self, target: str, headers: Mapping[str, str] | None = None) -> Served:
        """Start a constant endpoint that sends what the gateway sends now for this target."""
        return self.setup.constant(("", self.sample(target, headers)))

    def sample(self, target: str, headers: Mapping[str, str] | None = None) -> Prepared:
        """Return what the gateway answers now."""
        return prepared(self.gateway().url, target, list((headers or {}).items()))

    def naive(self, module: str = "naive") -> Served:
        """Start a baseline that reads the node the gateway reads."""
        self.gateway()
        return self.setup.baseline(module, "--redis", self.setup.nodes.replicas[0].url)

    def contest(self, lines: Sequence[Asked], makers: Mapping[str, Callable[[], Contender]]) -> Contest:
        """Start the contenders; one that cannot be started costs only the lines it is part of."""
        wanted = [line for line in lines if not self.only or line.key in self.only]
        needed = {name for line in wanted for name in (line.of, line.against)}
        made, absent = [], {}
        for name, make in makers.items():
            if name not in needed:
                continue
            try:
                made.append(make())
            except (Missing, RuntimeError, TimeoutError, OSError) as error:
                absent[name] = why_missing(error)
        found = [Line(key=a.key, what=a.what, of=a.of, against=a.against, asked=a.ratio, value=a.value) for a in wanted]
        return Contest(made, found, absent)


def contender(name: str, url: str, **more: object) -> Contender:
    """Return a contender that is asked for one URL."""
    headers = more.pop("headers", {})
    members = more.pop("members", 0)
    return Contender(name=name, shot=Shot(url=url, headers=headers, members=members), **more)  # type: ignore[arg-type]


def top(bench: Bench) -> Contest:
    """The cached top, directly."""
    return bench.contest(
        LINES["top"],
        {
            "gateway": lambda: contender("gateway", bench.gateway().url + TOP, expect=ROWS),
            "constant": lambda: contender("constant", bench.like(TOP).url + TOP, expect=ROWS),
            "naive": lambda: contender("naive", bench.naive().url + TOP, expect=ROWS[:-1]),
            "aiocache": lambda: contender("aiocache", bench.naive("aiocache_decorated").url + TOP, expect=ROWS[:-1]),
            "webdis": lambda: contender("webdis", _webdis_top(bench), expect=b'"ZREVRANGE":["pkg-'),
        },
    )


def _webdis_top(bench: Bench) -> str:
    bench.gateway()
    node = bench.setup.nodes.replicas[0]
    return f"{edges.webdis(bench.setup, node).url}/ZREVRANGE/lb:{LARGE}/0/99/WITHSCORES"


def conditional(bench: Bench) -> Contest:
    """The top for a client that holds it: 304."""
    etag = dict(bench.sample(TOP).headers)[b"etag"].decode("latin-1")
    headers = {"If-None-Match": etag}
    return bench.contest(
        LINES["conditional"],
        {
            "gateway": lambda: contender("gateway", bench.gateway().url + TOP, headers=headers, status=304),
            "constant": lambda: contender("constant", bench.like(TOP, headers).url + TOP, headers=headers, status=304),
        },
    )


def edge(bench: Bench) -> Contest:
    """The top cached at an edge, against nginx serving a file of that size."""
    setup = bench.setup
    dialects = {"cdn": {"dialects": ["nginx", "varnish"]}}
    behind = cache(partial(bench.another, tables=dialects))
    return bench.contest(
        LINES["edge"],
        {
            "nginx": lambda: contender("nginx", edges.nginx_cached(setup, behind()).url + TOP, expect=ROWS),
            "file": lambda: contender("file", edges.nginx_file(setup, bench.sample(TOP).body).url + "/top.json"),
            "varnish": lambda: contender("varnish", edges.varnish(setup, behind()).url + TOP, expect=ROWS),
        },
    )


def rank(bench: Bench) -> Contest:
    """One member's rank, score and the total, on a large board, random members."""
    members, expect = bench.large, b'"rank":'
    reply = b'"EVALSHA":[%d,' % members
    one = MEMBER.format(0)
    return bench.contest(
        LINES["rank"],
        {
            "gateway": lambda: contender("gateway", bench.gateway().url + MEMBER, members=members, expect=expect),
            "constant": lambda: contender("constant", bench.like(one).url + MEMBER, members=members, expect=expect),
            "naive": lambda: contender("naive", bench.naive().url + MEMBER, members=members, expect=expect),
            "webdis": lambda: contender("webdis", _webdis_rank(bench), members=members, expect=reply),
        },
    )


def _webdis_rank(bench: Bench) -> str:
    """Return webdis's URL of the gateway's own script on the node that the gateway reads."""
    bench.gateway()
    node = bench.setup.nodes.replicas[0]
    sha: Any = node.client().script_load(SCRIPTS["desc", "ordinal"].member.source)
    return f"{edges.webdis(bench.setup, node).url}/EVALSHA/{sha}/1/lb:{LARGE}/pkg-{{}}"


def neighbors(bench: Bench) -> Contest:
    """A member with five neighbors on each side, on a large board, random members."""
    members = bench.large
    one = NEIGHBORS.format(0)
    return bench.contest(
        LINES["neighbors"],
        {
            "gateway": lambda: contender("gateway", bench.gateway().url + NEIGHBORS, members=members, expect=ROWS),
            "constant": lambda: contender("constant", bench.like(one).url + NEIGHBORS, members=members, expect=ROWS),
            "naive": lambda: contender("naive", bench.naive().url + NEIGHBORS, members=members, expect=ROWS[:-1]),
        },
    )


def kinds(bench: Bench) -> Contest:
    """The other kinds of read: a range beyond the top and the board itself, cached; a batch of members, not."""
    makers: dict[str, Callable[[], Contender]] = {}
    for kind, (target, expect) in {
        "ranks": (RANKS, ROWS),
        "board": (BOARD, b'"staleness_bound_s":'),
        "batch": (BATCH, ROWS),
    }.items():
        makers[kind] = partial(_asked, bench.gateway, kind, target, expect)
        makers[f"constant {kind}"] = partial(_asked, partial(bench.like, target), f"constant {kind}", target, expect)
    return bench.contest(LINES["kinds"], makers)


def _asked(server: Callable[[], Served], name: str, target: str, expect: bytes) -> Contender:
    return contender(name, server().url + target, expect=expect)


def size(bench: Bench) -> Contest:
    """Rank on a large board against a small one."""
    few, many = MEMBERS[SMALL], bench.large
    url = bench.gateway().url
    return bench.contest(
        LINES["size"],
        {
            "large": lambda: contender("large", url + MEMBER, members=many, expect=b'"rank":'),
            "small": lambda: contender("small", url + MEMBER.replace(LARGE, SMALL), members=few, expect=b'"rank":'),
        },
    )


def outage(bench: Bench) -> Contest:
    """The top while every Redis node is frozen, against before."""
    url = bench.gateway().url + TOP
    everyone = [node.process for node in bench.setup.nodes.all]

    def freeze(stack: ExitStack) -> object:
        return stack.enter_context(frozen(*everyone))

    return bench.contest(
        LINES["outage"],
        {
            "before": lambda: contender("before", url, expect=ROWS),
            "frozen": lambda: contender("frozen", url, expect=ROWS, enter=freeze),
        },
    )


def workers(bench: Bench) -> Contest:
    """Two workers against one."""
    return bench.contest(
        LINES["workers"],
        {
            "one": lambda: contender("one", bench.gateway().url + TOP, expect=ROWS),
            "two": lambda: contender("two", bench.another(workers=2).url + TOP, expect=ROWS),
        },
    )


def gzip(bench: Bench) -> Contest:
    """The compressed form against the plain one."""
    headers = {"Accept-Encoding": "gzip"}
    return bench.contest(
        LINES["gzip"],
        {
            "gzip": lambda: contender("gzip", bench.gateway().url + TOP, headers=headers, expect=b"\x1f\x8b"),
            "plain": lambda: contender("plain", bench.gateway().url + TOP, expect=ROWS),
        },
    )


def shared_tier(bench: Bench) -> Contest:
    """Four workers with the shared tier against four without."""
    tier = {"shared_tier": {"url": bench.setup.nodes.primary.url.replace("/0", "/1")}}
    off, on = partial(bench.another, workers=4), partial(bench.another, workers=4, tables=tier)
    count = bench.setup.nodes.range_commands
    return bench.contest(
        LINES["shared_tier"],
        {
            "off": lambda: contender("off", off().url + TOP, expect=ROWS, count=count),
            "on": lambda: contender("on", on().url + TOP, expect=ROWS, count=count),
        },
    )


LINES: Mapping[str, Sequence[Asked]] = {
    "top": [
        Asked("top", "cached top-100, direct, against constant", "gateway", "constant", 0.90),
        Asked("top_webdis", "top-100 against webdis ZREVRANGE … WITHSCORES", "gateway", "webdis", 1.9),
        Asked("top_naive", "top-100 against naive", "gateway", "naive"),
        Asked("top_aiocache", "top-100 against naive with aiocache's decorator", "gateway", "aiocache"),
    ],
    "conditional": [Asked("conditional", "the same with If-None-Match (304)", "gateway", "constant", 0.95)],
    "edge": [
        Asked("nginx", "cached in the shipped nginx, against nginx serving a file", "nginx", "file", 0.75),
        Asked("varnish", "cached in Varnish, against nginx serving a file", "varnish", "file"),
    ],
    "rank": [
        Asked("rank", "rank with score and total, against constant", "gateway", "constant", 0.65),
        Asked("rank_naive", "rank against naive (three awaited calls)", "gateway", "naive", 2.2),
        Asked("rank_webdis", "rank against webdis running the same script", "gateway", "webdis", 0.65),
    ],
    "neighbors": [
        Asked("neighbors", "neighbors ±5, against constant", "gateway", "constant", 0.42),
        Asked("neighbors_naive", "neighbors against naive (two awaited calls)", "gateway", "naive", 2.5),
    ],
    "kinds": [
        Asked("ranks", "ranks 101 to 200, against constant", "ranks", "constant ranks"),
        Asked("board", "the board itself, against constant", "board", "constant board"),
        Asked("batch", "a batch of 20 members, against constant", "batch", "constant batch"),
    ],
    "size": [Asked("size", "rank on the large board against 10,000 members", "large", "small", 0.85)],
    "outage": [
        Asked("outage", "p99 of the top while Redis is frozen, against before", "frozen", "before", None, "p99_ms")
    ],
    "workers": [Asked("workers", "top-100 with two workers against one", "two", "one")],
    "gzip": [Asked("gzip", "top-100 in gzip against plain", "gzip", "plain")],
    "shared_tier": [
        Asked("shared_tier", "top-100, 4 workers, shared tier on against off", "on", "off"),
        Asked(
            "shared_tier_reads",
            "Redis range commands, 4 workers, shared tier on against off",
            "on",
            "off",
            None,
            "counted",
        ),
    ],
}

CONTESTS: Mapping[str, Callable[[Bench], Contest]] = {
    "top": top,
    "conditional": conditional,
    "edge": edge,
    "rank": rank,
    "neighbors": neighbors,
    "kinds": kinds,
    "size": size,
    "workers": workers,
    "gzip": gzip,
    "shared_tier": shared_tier,
    "outage": outage,
}
