"""How new machines reach the K3s servers, and what a proxy means for Holdfast itself. Asks nobody."""

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from holdfast.entrypoints.doctor.findings import Finding, ok, warning
from holdfast.kernel.settings import Settings

SERVER: Final = "K3S_URL"
PROXY: Final = "proxy"
_METADATA: Final = "169.254.169.254"
_PROXIES: Final = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


def server(settings: Settings) -> Iterator[Finding]:
    """A K3s agent needs one address to join; it learns those of the other servers, and balances among them."""
    host = urlsplit(settings.k3s_url or "").hostname or ""
    try:
        ip_address(host)
    except ValueError:
        yield ok(SERVER, f"{host}: several servers may be behind this name; each needs --tls-san {host}")
    else:
        yield ok(
            SERVER, f"{host}: one address; with several servers, use a name or a load balancer, so that any can go"
        )


def proxies(environment: Mapping[str, str]) -> Iterator[Finding]:
    used = [name for name in _PROXIES if environment.get(name)]
    if not used:
        return
    seen = f"{used[0]} is set: AWS is called through it; Kubernetes, Prometheus, GitHub and webhooks are not"
    yield warning(PROXY, seen, "let this machine reach those directly; workers: see docs/bootstrap.md#proxies")
    if _METADATA not in environment.get("NO_PROXY", environment.get("no_proxy", "")):
        seen = f"NO_PROXY does not have {_METADATA}, so the credentials of an instance role are asked for at the proxy"
        yield warning(PROXY, seen, f"add {_METADATA} to NO_PROXY, and the addresses of your VPC endpoints")
