"""A machine on which the user data runs: a directory as its /, and stand-ins for everything outside it.

Every program that the script may call is a small wrapper that records its arguments and its environment. Its `curl`
responds like the metadata service, SSM and a download; `cloud` is the same over real connections, for the real curl.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import strategies as st

from holdfast.kernel.settings.bootstrap import BootstrapSettings

K3S = b"#!/bin/sh\necho the K3s binary\n"
K3S_SUM = hashlib.sha256(K3S).hexdigest()
JOIN_TOKEN = f"K10{'a1' * 32}::server:join-token-secret"
SESSION = "metadata-session-secret=="
CREDENTIALS = {"AccessKeyId": "ASIAEXAMPLE", "SecretAccessKey": "role/key+secret", "Token": "role-session-secret=="}
SECRETS = (JOIN_TOKEN, "join-token-secret", SESSION, CREDENTIALS["SecretAccessKey"], CREDENTIALS["Token"])
DOCUMENT = {"instanceId": "i-0abc1234def567890", "availabilityZone": "eu-west-1b", "privateIp": "10.0.1.7"}

BAKED = BootstrapSettings(k3s_url="https://10.0.0.10:6443", k3s_token_parameter="/holdfast/k3s-token")
FETCHED = replace(
    BAKED,
    k3s_binary_url="https://k3s.example/{version}/k3s{suffix}",
    k3s_version="v1.33.5+k3s1",
    k3s_sha256_amd64=K3S_SUM,
)

HOSTILE = (
    "$(reboot)",
    "`id`",
    "'; reboot #",
    '"',
    "\\",
    "\n",
    "\0",
    "%s",
    "${IFS}",
    "-K/x",
    "@/x",
    "*",
    "&",
    "é",
    "=END",
)
hostile_text = st.sampled_from(HOSTILE) | st.text(st.characters(codec="utf-8"), max_size=3)

WRAPPER = """\
#!/bin/sh
{ printf '%s\\037' "${0##*/}" "$@"; printf '\\036'; } >>"HERE/calls"
export -p >>"HERE/environments"
PATH='REAL_PATH'
"""

# Metadata only with a session token; a missing response is curl's exit code for an HTTP error.
CURL = """
for last; do
  if [ "$option" = --output ]; then output=$last; fi
  option=$last
done
case "$*" in
*--config*) cat >>"HERE/requests" ;;
*'--request PUT'*) ;;
*)
  read -r header
  [ "$header" = 'X-aws-ec2-metadata-token: SESSION' ] || exit 22
  ;;
esac
case "$*" in
*--output*) exec cp "HERE/answers/k3s" "$output" ;;
*--config*) exec cat "HERE/answers/ssm" ;;
*/) last=${last}index ;;
esac
cat "HERE/answers/${last#http://169.254.169.254/latest/}" 2>/dev/null || exit 22
"""
PROGRAMS = {
    **{name: f'exec {name} "$@"' for name in ("chmod", "install", "mv", "rm", "sha256sum")},
    # Not that of the virtual environment: it would need the environment's own files.
    "python3": f'exec "{sys._base_executable}" "$@"',  # type: ignore[attr-defined]
    "curl": CURL.replace("SESSION", SESSION),
    "sleep": "",
    "systemctl": "",
    "uname": 'cat "HERE/answers/uname"',
}


@dataclass(frozen=True)
class Outcome:
    code: int
    log: str
    calls: list[list[str]]

    def calls_of(self, program: str) -> list[list[str]]:
        return [call[1:] for call in self.calls if call[0] == program]


class Sandbox:
    """A machine that is a directory: `root` is its /, `answers` are the responses that it gets."""

    def __init__(self, here: Path) -> None:
        self.here, self.root, self.answers, self.programs = here, here / "root", here / "answers", here / "bin"
        self.programs.mkdir(parents=True)
        for name, text in PROGRAMS.items():
            self.add(name, text)
        (self.programs / "bash").symlink_to(shutil.which("bash") or "bash")
        self.reset()

    def add(self, name: str, text: str) -> None:
        file = self.programs / name
        file.write_text(
            (WRAPPER + text + "\n").replace("HERE", str(self.here)).replace("REAL_PATH", os.environ["PATH"])
        )
        file.chmod(0o755)

    def reset(self) -> None:
        """A machine fresh from the image, with correct responses."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.rmtree(self.answers, ignore_errors=True)
        for directory in ("usr/local/bin", "etc/systemd/system"):
            (self.root / directory).mkdir(parents=True)
        self.say("uname", "x86_64")
        self.say("k3s", K3S)
        self.say("ssm", json.dumps({"Parameter": {"Value": JOIN_TOKEN}}))
        self.say("api/token", SESSION)
        self.say("dynamic/instance-identity/document", json.dumps(DOCUMENT))
        self.say("meta-data/instance-life-cycle", "spot")
        self.say("meta-data/placement/region", "eu-west-1")
        self.say("meta-data/services/domain", "amazonaws.com")
        self.say("meta-data/iam/security-credentials/index", "worker-role")
        self.say("meta-data/iam/security-credentials/worker-role", json.dumps(CREDENTIALS))

    def say(self, name: str, answer: str | bytes) -> None:
        file = self.answers / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(answer if isinstance(answer, bytes) else answer.encode())

    def bake(self, binary: bytes) -> None:
        self.k3s.write_bytes(binary)
        self.k3s.chmod(0o755)

    def run(self, text: str) -> Outcome:
        for name in ("calls", "environments", "requests"):
            (self.here / name).write_bytes(b"")
        script = self.here / "user-data"
        script.write_text(text)
        script.chmod(0o700)
        done = subprocess.run(
            [script, self.root],
            env={"PATH": str(self.programs)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        calls = [call.split("\037")[:-1] for call in (self.here / "calls").read_text().split("\036")[:-1]]
        return Outcome(done.returncode, done.stdout.decode(), calls)

    @property
    def k3s(self) -> Path:
        return self.root / "usr/local/bin/k3s"

    @property
    def token(self) -> Path:
        return self.root / "etc/holdfast/k3s-token"

    @property
    def unit(self) -> str:
        return (self.root / "etc/systemd/system/k3s-agent.service").read_text()

    @property
    def options(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            (self.root / "etc/rancher/k3s/config.yaml.d/90-holdfast.yaml").read_text(encoding="ascii")
        )
        return found

    @property
    def requests(self) -> list[tuple[str, str]]:
        """What curl read from stdin, as (setting, value)."""
        lines = (self.here / "requests").read_text().splitlines()
        return [(name, json.loads(value)) for name, _, value in (line.partition(" = ") for line in lines)]

    def tree(self) -> dict[str, tuple[int, bytes]]:
        files = (path for path in sorted(self.root.rglob("*")) if path.is_file())
        return {str(path.relative_to(self.root)): (path.stat().st_mode & 0o777, path.read_bytes()) for path in files}


def signature_of(request: dict[str, str], host: str, region: str, body: str) -> str:
    """The signature of boto3's own signer for the same request."""
    names = ("content-type", "x-amz-date", "x-amz-security-token", "x-amz-target")
    signed = AWSRequest("POST", f"https://{host}/", headers={name: request[name] for name in names}, data=body)
    signed.context["timestamp"] = request["x-amz-date"]
    keys = Credentials(CREDENTIALS["AccessKeyId"], CREDENTIALS["SecretAccessKey"], CREDENTIALS["Token"])
    signer = SigV4Auth(keys, "ssm", region)
    return signer.signature(signer.string_to_sign(signed, signer.canonical_request(signed)), signed)


class CloudHandler(BaseHTTPRequestHandler):
    """Metadata, SSM and a download, as strict as the real ones."""

    server: Cloud
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        is_right = self.path == "/latest/api/token" and "X-aws-ec2-metadata-token-ttl-seconds" in self.headers
        self.answer(200 if is_right else 400, SESSION.encode())

    def do_GET(self) -> None:
        if self.path == "/v1.33.5%2Bk3s1/k3s":
            self.answer(302, b"", location="https://k3s.example/moved")
        elif self.path == "/moved":
            self.answer(200, K3S)
        elif self.headers["X-aws-ec2-metadata-token"] != SESSION:
            self.answer(401, b"")
        else:
            name = self.path.removeprefix("/latest/")
            file = self.server.answers / (f"{name}index" if name.endswith("/") else name)
            self.answer(200, file.read_bytes())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        request = {name.lower(): value for name, value in self.headers.items()}
        is_signed = request["authorization"].endswith(signature_of(request, request["host"], "eu-west-1", body))
        is_right = is_signed and json.loads(body) == {"Name": "/holdfast/k3s-token", "WithDecryption": True}
        self.answer(200, (self.server.answers / "ssm").read_bytes() if is_right else b'{"__type": "BadRequest"}')

    def answer(self, status: int, body: bytes, location: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Cloud(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answers: Path, tls: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), CloudHandler)
        self.answers = answers
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)


@contextmanager
def cloud(answers: Path, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    server = Cloud(answers, tls)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
