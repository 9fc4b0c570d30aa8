"""Access to the API server: from a kubeconfig file, from inside a cluster, or from settings.

The server's certificate is always verified; a kubeconfig that disables that is refused. So is anything else in a
kubeconfig that would otherwise be ignored: Holdfast might then connect as another user.
"""

import base64
import binascii
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from holdfast.adapters.kube.tokens import FetchedToken, FileToken, FixedToken, Token
from holdfast.kernel.errors import BadSetting, MissingExtra
from holdfast.ports.clock import Clock

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

# Authentication that would need another program, or that servers no longer support.
_REFUSED_USER_KEYS: Final = {
    "exec": "plugins are not run; use a service account's token",
    "auth-provider": "plugins are not run; use a service account's token",
    "username": "API servers no longer accept passwords; use a service account's token",
    "as": "impersonation is not supported; use a service account's token",
}


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A certificate (with its chain) and its key, as PEM."""

    chain: str = field(repr=False)
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ApiServerAddress:
    """A parsed server URL."""

    host: str
    port: int
    prefix: str  # the path before /api, if a gateway serves several clusters

    @classmethod
    def parsed(cls, url: str, where: str) -> Self:
        try:
            parts = parse_url(url)
        except LocationParseError:
            raise BadSetting(f"{where}: the server is not a URL; for example https://10.0.0.10:6443") from None
        if parts.scheme != "https" or not parts.host or parts.auth or parts.query or parts.fragment:
            raise BadSetting(
                f"{where}: the server must be an https URL without a user; for example https://10.0.0.10:6443"
            )
        return cls(parts.host.strip("[]"), parts.port or 443, (parts.path or "").rstrip("/"))


@dataclass(frozen=True, slots=True)
class KubeAccess:
    """The API server's address, its CA, and our credentials."""

    server: ApiServerAddress
    ca_pem: str | None  # None: the system's CAs
    token: Token | None = field(default=None, repr=False)
    certificate: ClientCertificate | None = field(default=None, repr=False)
    server_name: str | None = None  # the name in the server's certificate, if it is not the host

    def ssl_context(self) -> ssl.SSLContext:
        """A context that always verifies certificate and host name."""
        # Not create_default_context: from Python 3.13 on it refuses CAs without a key identifier, as K3s creates them.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.ca_pem is None:
            context.load_default_certs()
        else:
            _load_ca(context, self.ca_pem)
        if self.certificate:
            _load_certificate(context, self.certificate)
        return context


def access_from_settings(server: str, token: Callable[[], str], clock: Clock, ca_pem: str | None = None) -> KubeAccess:
    """Access with a token that is fetched, for example from SSM."""
    return KubeAccess(ApiServerAddress.parsed(server, "Kubernetes"), ca_pem, FetchedToken(token, clock))


def in_cluster(environment: Mapping[str, str], directory: Path = SERVICE_ACCOUNT) -> KubeAccess:
    """Access as the service account of the pod that this process runs in."""
    host = environment.get("KUBERNETES_SERVICE_HOST")
    port = environment.get("KUBERNETES_SERVICE_PORT_HTTPS") or environment.get("KUBERNETES_SERVICE_PORT") or "443"
    if not host:
        raise BadSetting("KUBECONFIG is not set, and this process is not running in a pod; set KUBECONFIG to a file")
    url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    ca_pem = _read(directory / "ca.crt", "the service account")
    return KubeAccess(ApiServerAddress.parsed(url, "KUBERNETES_SERVICE_HOST"), ca_pem, FileToken(directory / "token"))


def from_kubeconfig(path: Path, context: str | None = None) -> KubeAccess:
    """Access by a kubeconfig file, with its current context or the named one."""
    where = f"kubeconfig {path}"
    config = _loaded(path, where)
    chosen = context or _text(config, "current-context", where)
    if not chosen:
        raise BadSetting(f"{where}: no current-context; choose one with: kubectl config use-context NAME")
    names = _entry(config, "contexts", "context", chosen, where)
    cluster = _entry(config, "clusters", "cluster", _text(names, "cluster", where), where)
    user = _entry(config, "users", "user", _text(names, "user", where), where)
    return _access(cluster, user, path.parent, where)


def _access(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path, where: str) -> KubeAccess:
    if cluster.get("insecure-skip-tls-verify"):
        remedy = "use certificate-authority or certificate-authority-data instead"
        raise BadSetting(f"{where}: insecure-skip-tls-verify is not supported; {remedy}")
    if cluster.get("proxy-url"):
        raise BadSetting(f"{where}: proxy-url is not supported; connect to the API server directly")
    for key, why in _REFUSED_USER_KEYS.items():
        if user.get(key):
            raise BadSetting(f"{where}: the user has {key}, but {why}")
    access = KubeAccess(
        server=ApiServerAddress.parsed(_text(cluster, "server", where), where),
        ca_pem=_pem(cluster, "certificate-authority", folder, where),
        token=_token(user, folder, where),
        certificate=_certificate(user, folder, where),
        server_name=_text(cluster, "tls-server-name", where) or None,
    )
    if access.token is None and access.certificate is None:
        raise BadSetting(f"{where}: the user has neither a token nor a client certificate")
    return access


def _token(user: Mapping[str, Any], folder: Path, where: str) -> Token | None:
    # A file takes precedence over a value, as in kubectl.
    if file := _text(user, "tokenFile", where):
        return FileToken(folder / file)
    value = _text(user, "token", where)
    return FixedToken(value) if value else None


def _certificate(user: Mapping[str, Any], folder: Path, where: str) -> ClientCertificate | None:
    chain = _pem(user, "client-certificate", folder, where)
    key = _pem(user, "client-key", folder, where)
    if chain is None and key is None:
        return None
    if chain is None or key is None:
        raise BadSetting(f"{where}: a client certificate needs both client-certificate and client-key")
    return ClientCertificate(chain, key)


def _pem(section: Mapping[str, Any], key: str, folder: Path, where: str) -> str | None:
    """The text in `key`-data, decoded from base64, or in the file named by `key`."""
    if data := _text(section, f"{key}-data", where):
        try:
            return base64.b64decode(data, validate=True).decode("ascii")
        except (binascii.Error, UnicodeDecodeError):
            raise BadSetting(f"{where}: {key}-data is not PEM in base64") from None
    file = _text(section, key, where)
    return _read(folder / file, where) if file else None


def _loaded(path: Path, where: str) -> Mapping[str, Any]:
    try:
        import yaml  # here, because only a kubeconfig needs it
    except ImportError as error:
        raise MissingExtra(where, "PyYAML", "kube") from error
    try:
        config = yaml.safe_load(_read(path, "KUBECONFIG"))
    except yaml.YAMLError as error:
        # Not the error's own text: it quotes the line, which may contain a key.
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        raise BadSetting(f"{where}: not a YAML file{line}") from None
    if not isinstance(config, dict):
        raise BadSetting(f"{where}: not a kubeconfig; expected contexts, clusters and users")
    return config


def _entry(config: Mapping[str, Any], plural: str, singular: str, name: str, where: str) -> Mapping[str, Any]:
    entries = config.get(plural)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(found := entry.get(singular), dict):
            return found
    raise BadSetting(f"{where}: there is no {singular} named {name!r}")


def _text(section: Mapping[str, Any], key: str, where: str) -> str:
    value = section.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadSetting(f"{where}: {key} is not text")
    return value


def _read(path: Path, where: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadSetting(f"{where}: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise BadSetting(f"{where}: {path} is not text") from None


def _load_ca(context: ssl.SSLContext, pem: str) -> None:
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise BadSetting("the Kubernetes CA is not a PEM certificate; copy it from the server again") from error


def _load_certificate(context: ssl.SSLContext, certificate: ClientCertificate) -> None:
    # Python reads these only from files. The directory is private, and removed right after.
    with tempfile.TemporaryDirectory(prefix="holdfast-") as scratch:
        chain, key = Path(scratch) / "chain.pem", Path(scratch) / "key.pem"
        chain.write_text(certificate.chain, encoding="utf-8")
        key.touch(mode=0o600)
        key.write_text(certificate.key, encoding="utf-8")
        try:
            # With a password, so that OpenSSL never asks for one at the terminal.
            context.load_cert_chain(chain, key, password="")
        except (ssl.SSLError, ValueError) as error:
            raise BadSetting("the client certificate or its key is not PEM, or they do not match") from error
