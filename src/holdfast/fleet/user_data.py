"""User data: the script that makes a new machine join its cluster.

The script (`k3s_worker.sh`) is the same for every cluster; the settings are in it as base64 of JSON, never as shell
code. The same settings always give the same bytes, because EC2 refuses a repeated launch with different user data. So
it contains no time, no instance id and no secret. The machine fetches the join token with its own role.
"""

import base64
import json
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Final
from urllib.parse import quote

from holdfast.kernel.errors import BadSetting
from holdfast.kernel.settings.bootstrap import BootstrapSettings
from holdfast.ports.machines import USER_DATA_BYTES_MOST

# K3s' own names of its binaries have no architecture for amd64.
_SUFFIXES: Final = {"amd64": "", "arm64": "-arm64"}
_NO_SETTINGS: Final = "readonly SETTINGS='e30='\n"


def user_data(settings: BootstrapSettings) -> str:
    """The user data of every worker, or one `BadSetting` with a line for each problem."""
    problems = list(_problems(settings))
    if problems:
        raise BadSetting("\n".join(problems))
    text = _script().replace(_NO_SETTINGS, f"readonly SETTINGS='{_encoded(settings)}'\n")
    size = len(text.encode())
    if size > USER_DATA_BYTES_MOST:
        raise BadSetting(
            f"the bootstrap settings make {size} bytes of user data, but EC2 accepts {USER_DATA_BYTES_MOST}; "
            f"use fewer or shorter NODE_LABELS (now {len(settings.node_labels)})"
        )
    return text


@cache
def _script() -> str:
    return resources.files("holdfast.fleet").joinpath("k3s_worker.sh").read_text(encoding="ascii")


def _encoded(settings: BootstrapSettings) -> str:
    sums = _checksums(settings)
    parts = {
        "server": settings.k3s_url,
        "token_parameter": settings.k3s_token_parameter,
        "labels": settings.node_labels,
        "urls": {arch: _address(settings, arch) for arch in sums} if settings.k3s_binary_url else {},
        "sha256": sums,
    }
    return base64.b64encode(json.dumps(parts, sort_keys=True).encode()).decode("ascii")


def _checksums(settings: BootstrapSettings) -> dict[str, str]:
    given = {"amd64": settings.k3s_sha256_amd64, "arm64": settings.k3s_sha256_arm64}
    return {arch: value for arch, value in given.items() if value}


def _address(settings: BootstrapSettings, arch: str) -> str:
    # Encode the + of a version: in the URL of an S3 object a plain + means a space.
    values = {"{version}": quote(settings.k3s_version or "", safe=""), "{arch}": arch, "{suffix}": _SUFFIXES[arch]}
    address = settings.k3s_binary_url or ""
    for name, value in values.items():
        address = address.replace(name, value)
    return address


def _problems(settings: BootstrapSettings) -> Iterator[str]:
    """Problems between settings: each value alone is valid."""
    s, url = settings, settings.k3s_binary_url or ""
    if not s.k3s_url:
        yield "K3S_URL is not set, so new machines cannot join; for example K3S_URL=https://10.0.0.10:6443"
    if not s.k3s_token_parameter:
        yield (
            "K3S_TOKEN_PARAMETER is not set, so new machines cannot join; "
            "for example K3S_TOKEN_PARAMETER=/holdfast/k3s-token"
        )
    if url and not _checksums(s):
        yield (
            "K3S_BINARY_URL is set, but neither K3S_SHA256_AMD64 nor K3S_SHA256_ARM64: "
            "machines run only a binary that they can verify; copy the checksums from the release's sha256sum files"
        )
    if "{version}" in url and not s.k3s_version:
        yield "K3S_BINARY_URL has {version}, but K3S_VERSION is not set; for example K3S_VERSION=v1.33.5+k3s1"
    if s.k3s_version and "{version}" not in url:
        yield f"K3S_VERSION={s.k3s_version} has no effect: K3S_BINARY_URL has no {{version}}; add it, or unset this"
    if url and len(_checksums(s)) > 1 and not ("{arch}" in url or "{suffix}" in url):
        yield "K3S_BINARY_URL is the same for amd64 and arm64, which cannot work; put {arch} or {suffix} in it"
