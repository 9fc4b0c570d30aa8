"""Let uv reach what pip reaches: pip's settings, as the environment variables that mean the same to uv.

A machine says once, to pip, how packages are had: an index, certificates, a proxy. uv reads none of that. The settings
may hold passwords, so they go to the child process only: nothing here writes or prints them.
"""

from __future__ import annotations

import ast
import math
import os.path
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path

# pip merges in this order, the later winning: all commands, `pip install`, the environment (PIP_…).
_SECTIONS = ("global", "install", ":env:")


class PipError(Exception):
    """There is no pip, or it does not run."""


def read_pip_settings(python: Path) -> dict[str, str]:
    """pip's settings, from its files and the environment, as pip itself merges them."""
    done = subprocess.run([python, "-m", "pip", "config", "list"], check=False, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no reason given"]
        raise PipError(f"{python} -m pip does not run: {said[-1]}")
    return parse_pip_config(done.stdout)


def parse_pip_config(listing: str) -> dict[str, str]:
    """The output of `pip config list` (lines like `global.timeout='60'`) as one value for each setting."""
    found: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in listing.splitlines():
        key, equals, literal = line.partition("=")
        section, dot, name = key.rpartition(".")
        if equals and dot and section in found:
            found[section][name] = str(ast.literal_eval(literal))
    return {name: value for section in _SECTIONS for name, value in found[section].items()}


def uv_environment(pip: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for uv: the caller's, and what pip's settings add. What the caller says to uv (UV_…) wins."""
    said_by_pip = {**_indexes(pip), **_connection(pip)}
    said_to_uv = {name: value for name, value in environment.items() if name.startswith("UV_")}
    return {**_default_certificates(environment), **environment, **said_by_pip, **said_to_uv}


def uv_flags(pip: Mapping[str, str]) -> list[str]:
    """What uv takes as an option only."""
    return ["--no-index"] if pip.get("no-index", "").lower() in ("1", "true", "yes", "on") else []


def _indexes(pip: Mapping[str, str]) -> dict[str, str]:
    variables = {}
    if index := pip.get("index-url"):
        variables["UV_DEFAULT_INDEX"] = index
    if extra := pip.get("extra-index-url", "").split():
        variables["UV_INDEX"] = " ".join(extra)
        # pip looks in all indexes; uv would stop at the first that knows the name. The locked hashes make this safe.
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if links := pip.get("find-links", "").split():
        variables["UV_FIND_LINKS"] = ",".join(os.path.expanduser(link) for link in links)  # noqa: PTH111  or a URL
    if hosts := pip.get("trusted-host", "").split():
        variables["UV_INSECURE_HOST"] = " ".join(hosts)
    return variables


def _connection(pip: Mapping[str, str]) -> dict[str, str]:
    variables = {}
    if certificates := pip.get("cert"):
        variables["SSL_CERT_FILE"] = certificates
    if client := pip.get("client-cert"):
        variables["SSL_CLIENT_CERT"] = client
    if timeout := pip.get("timeout") or pip.get("default-timeout"):
        variables["UV_HTTP_TIMEOUT"] = str(math.ceil(float(timeout)))
    if retries := pip.get("retries"):
        variables["UV_HTTP_RETRIES"] = retries
    if proxy := pip.get("proxy"):
        # pip's proxy serves both schemes, and beats the environment, where either spelling may stand.
        variables |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy)
    return variables


def _default_certificates(environment: Mapping[str, str]) -> dict[str, str]:
    """Where pip looks when no `cert` is set: two variables, then the system's store. uv would trust its own list."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if bundle := environment.get(name):
            return {"SSL_CERT_FILE": bundle}
    store = ssl.get_default_verify_paths()
    has_certificates = store.cafile or (store.capath and any(Path(store.capath).iterdir()))
    return {"UV_SYSTEM_CERTS": "true"} if has_certificates else {}
