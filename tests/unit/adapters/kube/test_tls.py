"""Certificate verification is never turned off: neither in the code nor in the deployment files."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]

# Each way to turn it off in Python, with curl or wget, and in a kubeconfig.
OFF = re.compile(
    r"CERT_NONE|CERT_OPTIONAL|check_hostname\s*=\s*False|assert_hostname\s*=|_create_unverified_context"
    r"|verify\s*=\s*False|cert_reqs\s*=|disable_warnings|urllib3\.disable"
    r"|\bcurl\b[^\n]*\s(-[a-zA-Z]*k\b|--insecure)|--no-check-certificate"
    r"|insecure-skip-tls-verify[\"']?\s*:\s*[\"']?true|--insecure-skip-tls-verify"
)


def lines_that_turn_it_off(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if OFF.search(line)]


def test_no_file_turns_verification_off() -> None:
    files = [path for folder in ("src", "deploy") for path in (ROOT / folder).rglob("*") if path.is_file()]
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in files if path.suffix != ".pyc"}
    found = {
        str(path.relative_to(ROOT)): lines for path, text in texts.items() if (lines := lines_that_turn_it_off(text))
    }
    assert found == {}
    assert len(texts) > 20


@pytest.mark.parametrize(
    "line",
    [
        "context.verify_mode = ssl.CERT_NONE",
        "context.check_hostname = False",
        "pool = HTTPSConnectionPool(host, cert_reqs='NONE')",
        "requests.get(url, verify=False)",
        "ssl._create_unverified_context()",
        "curl -sfk https://server",
        "curl --insecure https://server",
        "wget --no-check-certificate https://server",
        "insecure-skip-tls-verify: true",
    ],
)
def test_each_way_to_turn_verification_off_is_detected(line: str) -> None:
    assert lines_that_turn_it_off(line)


@pytest.mark.parametrize("line", ["curl -sf --cacert ca.pem https://server", "insecure-skip-tls-verify is refused"])
def test_other_lines_are_not_reported(line: str) -> None:
    assert not lines_that_turn_it_off(line)
