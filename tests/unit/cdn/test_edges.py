"""The generated configurations: what is written from the declaration, and what the shipped file says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdn.edges import cloudflare, nginx, varnish
from cdn.edges.nginx import LOCK_TIMEOUT_MS, OWN_ERRORS, PROBLEM_PATH
from cdn.edges.site import (
    EXPOSED_FIELDS,
    GATEWAY_KEEPALIVE_S,
    KNOWN_PARAMETERS,
    READABLE_TARGET,
    REQUEST_ID,
    UPSTREAM_KEEPALIVE_S,
    Site,
    encoded_name,
    repeated,
)
from cdn.policy import Lives
from gateway.cli import main
from gateway.http.answers import CORS
from gateway.http.app import TARGET_LIMIT_BYTES
from gateway.http.ids import well_formed
from gateway.http.params import KNOWN
from gateway.server import serving

ROOT = Path(__file__).resolve().parents[3]
SITE = Site(lives=(Lives(),), dialects=("nginx", "varnish", "cloudflare"))


@pytest.mark.parametrize("edge", ["nginx", "varnish", "cloudflare"])
def test_the_command_prints_each_edge_from_the_same_file(edge: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["edge", edge, "--config", str(ROOT / "gateway.example.toml")], {}) == 0
    printed = capsys.readouterr().out
    assert f"leaderboard-gateway edge {edge}" in printed
    assert "cannot do of what the settings declare" in printed


def test_the_shipped_nginx_conf_is_what_the_command_prints_for_the_sample(capsys: pytest.CaptureFixture[str]) -> None:
    main(["edge", "nginx", "--config", str(ROOT / "gateway.example.toml")], {})
    assert capsys.readouterr().out == (ROOT / "nginx.conf").read_text(), (
        "run: python -m gateway edge nginx --config gateway.example.toml > nginx.conf"
    )


def test_the_shipped_nginx_gives_idle_connections_up_before_the_gateway_does() -> None:
    [seconds] = re.findall(r"upstream gateway \{.*?keepalive_timeout\s+(\d+)s;", shipped(), re.DOTALL)
    assert int(seconds) == UPSTREAM_KEEPALIVE_S < GATEWAY_KEEPALIVE_S == serving.KEEP_ALIVE_S


def test_the_gateway_has_no_connection_limit_that_idle_ones_could_use_up() -> None:
    assert not re.search(r"limit_concurrency\s*=", Path(serving.__file__).read_text())


def test_the_shipped_nginx_leads_nowhere_near_the_admin_address() -> None:
    assert "9464" not in shipped()
    assert "/metrics" not in shipped()
    assert re.findall(r"proxy_pass (\S+);", shipped()) == ["http://gateway"]


def test_the_shipped_nginx_decides_nothing_by_the_path_that_it_decoded_and_resolved() -> None:
    """Locations are found by that path, and an encoded id can make it any: so there is one, and one nobody can name."""
    outer = [name for name in re.findall(r"^ *location ([^{]*?) *\{", shipped(), re.MULTILINE) if name[0] != "="]
    assert outer == ["/", PROBLEM_PATH]
    assert "/./" in PROBLEM_PATH
    assert not re.search(r"\$(?:document_)?uri\b", shipped())


def test_those_who_wait_for_another_s_fetch_look_again_sooner_than_nginx_s_own_half_second() -> None:
    [shipped_ms] = re.findall(r"proxy_cache_lock_timeout (\d+)ms;", shipped())
    assert int(shipped_ms) == LOCK_TIMEOUT_MS < 500


def test_edges_key_on_the_parameters_that_the_gateway_reads() -> None:
    cacheable = KNOWN["catalogue"] | KNOWN["board"] | KNOWN["top"] | KNOWN["ranks"]
    assert {name.encode() for name in KNOWN_PARAMETERS} == cacheable


def test_edges_take_the_targets_and_ids_that_the_gateway_takes_and_expose_the_same_fields() -> None:
    assert re.search(READABLE_TARGET, "/" * TARGET_LIMIT_BYTES)
    assert not re.search(READABLE_TARGET, "/" * (TARGET_LIMIT_BYTES + 1))
    assert not any(re.search(READABLE_TARGET, "/?x=" + byte) for byte in "\x00\t\x1f \x7f\x80\xe9\xff")
    for given_id in ("a", "Root=1-67891233-abcdef012345", "a" * 128, "a" * 129, "", "a b", "a,b", 'a"', "\xe9"):
        assert bool(re.fullmatch(REQUEST_ID, given_id)) == well_formed(given_id.encode("latin-1"))
    assert dict(CORS)[b"access-control-expose-headers"].decode() == EXPOSED_FIELDS


@pytest.mark.parametrize(
    ("edge", "words"),
    [
        (nginx, "Two If-None-Match"),
        (nginx, "two Hosts"),
        (nginx, "128 header"),
        (nginx, "batch route"),
        (varnish, "two Hosts"),
    ],
)
def test_what_an_edge_s_parser_refuses_otherwise_than_the_gateway_is_said(edge: object, words: str) -> None:
    assert words in edge.configuration(SITE)  # type: ignore[attr-defined]


@given(data=st.data())
def test_a_parameter_s_name_is_found_however_its_letters_are_encoded(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(KNOWN_PARAMETERS))
    written = "".join(
        data.draw(st.sampled_from([letter, f"%{ord(letter):02X}", f"%{ord(letter):02x}"])) for letter in name
    )
    assert re.fullmatch(encoded_name(name), written)
    assert not re.fullmatch(encoded_name(name), written + "x")


@pytest.mark.parametrize(
    ("query", "twice"),
    [
        ("limit=1&limit=2", True),
        ("limit=1&x=2&%6Cimit=2", True),
        ("limit&limit", True),
        ("a=b&from=1&from=1", True),
        ("limit=1&period=2", False),
        ("limit=1&xlimit=2", False),
        ("limit=limit&x=limit", False),
        ("x=1&x=1", False),
        ("", False),
    ],
)
def test_a_known_parameter_given_twice_is_recognised(query: str, twice: bool) -> None:
    assert bool(re.search(repeated(KNOWN_PARAMETERS), query)) == twice


def test_every_error_that_nginx_answers_itself_is_a_problem_document_that_nobody_keeps() -> None:
    text = nginx.configuration(SITE)
    [shared] = re.findall(rf"location {PROBLEM_PATH} \{{(.*?)\n        \}}", text, re.DOTALL)
    assert "application/problem+json" in shared
    assert "Cache-Control no-store always" in shared
    for error in OWN_ERRORS:
        assert re.search(rf"error_page {error.status} (?:={error.shown} )?{PROBLEM_PATH}{error.status};", text)
        [document] = re.findall(
            rf"location = {PROBLEM_PATH}{error.status} \{{ return {error.shown} '(.*)'; \}}", shared
        )
        assert "add_header" not in document, "it would take the place of those that all have"
        assert json.loads(document)["status"] == error.shown
        assert json.loads(document)["code"] == error.code


def test_nothing_in_the_nginx_text_would_keep_an_answer_without_a_life_or_serve_one_past_it_unasked() -> None:
    text = re.sub(r"#.*", "", nginx.configuration(SITE))
    assert "proxy_cache_valid" not in text
    assert re.findall(r"proxy_cache_use_stale\s+(.*);", text) == ["http_502 http_503 http_504"]


def test_an_entry_outlives_the_longest_stale_window_of_any_board() -> None:
    text = nginx.configuration(replace(SITE, lives=(Lives(), Lives(edge_ttl_s=60, stale_if_error_s=7200))))
    assert "inactive=7260s" in text


def test_what_is_not_wanted_is_left_out() -> None:
    text = nginx.configuration(replace(SITE, rate_per_s=0, listen_h2=None))
    assert "limit_req" not in text
    assert "http2 backlog" not in text
    assert "real_ip" not in text


def test_tls_trusted_proxies_and_several_gateways_are_written_in() -> None:
    text = nginx.configuration(
        replace(SITE, tls=("c.pem", "k.pem"), trusted_proxies=("10.0.0.0/8",), origins=("a:1", "b:2"))
    )
    assert "listen 8001 ssl http2" in text
    assert "set_real_ip_from  10.0.0.0/8;" in text
    assert "server a:1;" in text
    assert "server b:2;" in text


@pytest.mark.parametrize("edge", [nginx, varnish, cloudflare])
def test_a_missing_dialect_is_said(edge: object) -> None:
    configuration = edge.configuration  # type: ignore[attr-defined]
    assert "dialects does not hold" in configuration(replace(SITE, dialects=()))
    assert "dialects does not hold" not in configuration(SITE)


def test_varnish_says_whether_a_purge_is_soft_and_needs_a_module_only_then() -> None:
    hard, soft = (varnish.configuration(replace(SITE, soft_purge=soft)) for soft in (False, True))
    assert ("xkey.softpurge" in soft, "import xkey" in soft, "Soft purge" in soft) == (True, True, False)
    assert ("import xkey" in hard, "std.ban" in hard, "Soft purge" in hard) == (False, True, True)


def test_varnish_asks_for_the_secret_where_there_is_one() -> None:
    assert "X-Purge-Secret" not in varnish.configuration(SITE)
    text = varnish.configuration(replace(SITE, purge_secret_file="/etc/varnish/purge", purgers=("10.1.0.0/16",)))
    assert 'std.fileread("/etc/varnish/purge")' in text
    assert '"10.1.0.0"/16;' in text


def test_cloudflare_s_rule_is_json_after_a_comment() -> None:
    text = cloudflare.configuration(SITE)
    [rule] = json.loads("".join(line for line in text.splitlines() if not line.startswith("#")))["rules"]
    assert rule["action_parameters"]["cache_key"]["custom_key"]["query_string"]["include"]["list"] == sorted(
        KNOWN_PARAMETERS
    )


def shipped() -> str:
    """Return the shipped file without its comments."""
    return re.sub(r"#.*", "", (ROOT / "nginx.conf").read_text())
