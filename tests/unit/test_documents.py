"""The documents agree with the code: accounts, metrics, commands, routes, files that are linked, curl lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway import __version__
from gateway.cli import COMMANDS
from gateway.http import openapi
from tests.accounts import CLUSTER_ACCOUNT, FIXED_ACCOUNT, PASSWORD, SENTINEL_ACCOUNT

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
OPERATIONS = (ROOT / "docs/operations.md").read_text()
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def acl_lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.startswith("ACL SETUSER")]


def documented(account: str) -> list[str]:
    return ["ACL", "SETUSER", *account.replace(PASSWORD, "SECRET").split()[1:]]


def test_the_accounts_in_the_documents_are_those_the_suite_runs_under() -> None:
    assert acl_lines(README) == [documented(FIXED_ACCOUNT)]
    assert acl_lines(OPERATIONS) == [documented(a) for a in (FIXED_ACCOUNT, CLUSTER_ACCOUNT, SENTINEL_ACCOUNT)]


def test_every_metric_is_documented_and_every_documented_one_exists() -> None:
    named = re.compile(r"[\"`](gateway_[a-z_]+)[\"`]")
    source = "\n".join(path.read_text() for path in (ROOT / "gateway").rglob("*.py"))
    declared = {name for name in named.findall(source) if not name.startswith("gateway_metrics")}
    assert set(named.findall(OPERATIONS)) == declared


def test_every_command_is_in_the_readme() -> None:
    for command in COMMANDS:
        assert re.search(rf"(`|leaderboard-gateway ){command}\b", README), command


def test_every_route_is_in_the_readme() -> None:
    for path in openapi.document()["paths"]:
        shown = path.replace("/v1/leaderboards/{leaderboard}/", "…/")
        assert re.search(rf"(GET |`){re.escape(shown)}[`?]", README) or path in {"/", "/livez", "/readyz"}, path


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if not link.startswith("http"):
            assert (document.parent / link).exists(), link


def test_the_changelog_knows_this_version() -> None:
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_architecture_fits_its_limit_and_names_every_part() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.splitlines()) <= 150
    parts = {
        path.stem for path in (ROOT / "gateway").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert "`*_cli`" in text
    for part in {part for part in parts if not part.endswith("_cli")} - {"__init__", "__main__"}:
        assert re.search(rf"`(gateway/)?{part}(/|\.py)?[`/]", text), part


def test_no_document_or_source_names_a_machine_or_a_registry() -> None:
    """Lock files included: versions, not addresses."""
    forbidden = re.compile(
        r"(?<![\w.])/(work|farm|root)/|pypi\.org|pythonhosted|registry\.npmjs|index-url", re.IGNORECASE
    )
    files = [path for path in ROOT.rglob("*") if path.suffix in {".py", ".md", ".txt", ".toml", ".conf", ".yaml"}]
    for path in files:
        parts = path.relative_to(ROOT).parts
        if not parts[0].startswith(".") and "test_documents" not in path.name and parts[0] != "reports":
            assert not forbidden.search(path.read_text()), path
