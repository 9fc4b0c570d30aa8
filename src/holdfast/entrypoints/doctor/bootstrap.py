"""How new machines reach the K3s servers, and what a proxy means for Holdfast itself. Makes no call."""

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from holdfast.entrypoints.doctor.findings import Finding, ok, warning
from holdfast.kernel.settings import Settings

SERVER: Final = "K3S_URL"
PROXY: Final = "proxy"
_METADATA: Final = "169.254.169.254"


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
    """As botocore reads them: by the scheme of the address, and the lower-case name first. It ignores ALL_PROXY."""
    https, http = _first_set(environment, "https_proxy"), _first_set(environment, "http_proxy")
    other = http or _first_set(environment, "all_proxy")
    if https:
        seen = f"{https} is set: AWS is called through it; Kubernetes, Prometheus, GitHub and webhooks are not"
        yield warning(PROXY, seen, "let this machine reach those directly; workers: see docs/bootstrap.md#proxies")
    elif other:
        seen = f"{other} is set, but not HTTPS_PROXY: AWS is called directly"
        yield warning(PROXY, seen, "set HTTPS_PROXY as well if AWS can only be reached through the proxy")
    exempt = environment.get(_first_set(environment, "no_proxy") or "", "")
    if http and exempt != "*" and _METADATA not in map(str.strip, exempt.split(",")):
        seen = f"{http} is set, and NO_PROXY does not have {_METADATA}: an instance role's credentials are not found"
        yield warning(PROXY, seen, f"add {_METADATA} to NO_PROXY, and the addresses of your VPC endpoints")


def _first_set(environment: Mapping[str, str], name: str) -> str | None:
    """The variable of that name, in lower or upper case, that has a value."""
    return next((each for each in (name, name.upper()) if environment.get(each)), None)
