"""The demo's arguments: what cannot be listened on is said before anything is started."""

from __future__ import annotations

import pytest

from gateway.cli import main


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "no.such.host.invalid"])
def test_a_host_that_cannot_be_listened_on_is_one_line(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--host", host, "--port", "0"], {}) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"demo: Cannot listen on {host}")
    assert (said.err.count("\n"), said.out) == (1, "")


@pytest.mark.parametrize(
    ("option", "values", "says"),
    [
        ("--port", ["99999", "-1", "x", "", "1.5"], "must be a whole number from 0 to 65535"),
        ("--seconds", ["nan", "inf", "-1", "x"], "must be a number from 0 to "),
    ],
)
def test_numbers_out_of_bounds_are_refused(
    option: str, values: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in values:
        with pytest.raises(SystemExit) as ended:
            main(["demo", f"{option}={value}"], {})
        assert ended.value.code == 2
        assert says in capsys.readouterr().err
