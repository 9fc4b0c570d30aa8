"""User data: the real script runs in a directory that stands for the machine; see `worker_sandbox.py`."""

from __future__ import annotations

import ast
import base64
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from holdfast.cluster.seen import INSTANCE_LABEL, UNVERIFIED_TAINT
from holdfast.fleet.user_data import user_data
from holdfast.kernel.errors import BadSetting
from holdfast.kernel.settings.bootstrap import BootstrapSettings
from holdfast.ports.machines import USER_DATA_BYTES_MOST
from tests.servers.certificates import new_authority
from tests.support.worker_sandbox import (
    BAKED,
    CREDENTIALS,
    DOCUMENT,
    FETCHED,
    JOIN_TOKEN,
    K3S,
    K3S_SUM,
    SECRETS,
    Outcome,
    Sandbox,
    cloud,
    hostile_text,
    signature_of,
)

SCRIPT = Path(__file__).parents[3] / "src/holdfast/fleet/k3s_worker.sh"
SHELLCHECK = Path(sys.executable).with_name("shellcheck")


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


# The text


@pytest.mark.parametrize("text", [SCRIPT.read_text(), user_data(FETCHED)], ids=["as-shipped", "with-settings"])
def test_the_script_is_valid_shell(text: str, tmp_path: Path) -> None:
    """For bash and shellcheck; and plain ASCII, since the locale of a starting machine is unknown."""
    file = tmp_path / "user-data.sh"
    file.write_text(text, encoding="ascii")
    for command in (["/usr/bin/env", "bash", "-n"], [str(SHELLCHECK)]):
        done = subprocess.run([*command, file], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_its_python_code_runs_on_the_oldest_image() -> None:
    """Amazon Linux 2023 has Python 3.9, and only the standard library."""
    program = SCRIPT.read_text().partition("PROGRAM <<'END' || true\n")[2].partition("\nEND\n")[0]
    tree = ast.parse(program, feature_version=(3, 9))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported
    assert imported <= sys.stdlib_module_names


def test_only_one_line_depends_on_the_settings_and_it_is_never_code() -> None:
    plain, other = (user_data(value).splitlines() for value in (BAKED, replace(FETCHED, node_labels=("a=b",))))
    assert len(plain) == len(other)
    ((_, line),) = [(a, b) for a, b in zip(plain, other, strict=True) if a != b]
    assert re.fullmatch(r"readonly SETTINGS='[A-Za-z0-9+/]+=*'", line)


def test_equal_settings_give_equal_bytes() -> None:
    """EC2 refuses a repeated launch with different user data, also from another process."""
    code = (
        "from holdfast.fleet.user_data import user_data; from holdfast.kernel.settings import load_settings; import os;"
        "print(user_data(load_settings(os.environ)), end='')"
    )
    environment = {"K3S_URL": "https://10.0.0.10:6443", "K3S_TOKEN_PARAMETER": "/holdfast/k3s-token"}
    for seed in ("1", "2"):
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env={**environment, "PYTHONHASHSEED": seed}, capture_output=True, check=True)
        assert done.stdout.decode() == user_data(BAKED)


def test_too_many_labels_are_an_error_and_not_a_failed_launch() -> None:
    """EC2 accepts 16 KB."""
    assert len(user_data(FETCHED).encode()) < USER_DATA_BYTES_MOST - 4096, "little room is left for labels"
    labels = tuple(f"example.com/{n}={'x' * 60}" for n in range(100))
    with pytest.raises(BadSetting, match=r"bytes of user data, but EC2 accepts 16384; .*NODE_LABELS \(now 100\)"):
        user_data(replace(FETCHED, node_labels=labels))


# How a machine joins


@pytest.mark.parametrize(
    ("lifecycle", "market"), [("spot", "spot"), ("on-demand", "on-demand"), ("capacity-block", "on-demand")]
)
def test_a_machine_joins_under_its_instance_id_with_identifying_labels(
    sandbox: Sandbox, lifecycle: str, market: str
) -> None:
    sandbox.say("meta-data/instance-life-cycle", lifecycle)
    outcome = sandbox.run(user_data(replace(FETCHED, node_labels=("team=web", "example.com/empty="))))
    assert outcome.code == 0, outcome.log
    assert sandbox.options == {
        "server": "https://10.0.0.10:6443",
        "node-name": DOCUMENT["instanceId"],
        "node-ip": DOCUMENT["privateIp"],
        "node-label+": [
            "team=web",
            "example.com/empty=",
            f"{INSTANCE_LABEL}={DOCUMENT['instanceId']}",
            f"holdfast.dev/lifecycle={market}",
            "topology.kubernetes.io/region=eu-west-1",
            "topology.kubernetes.io/zone=eu-west-1b",
        ],
        "kubelet-arg+": [f"provider-id=aws:///eu-west-1b/{DOCUMENT['instanceId']}"],
    }
    assert sandbox.k3s.read_bytes() == K3S
    assert sandbox.k3s.stat().st_mode & 0o777 == 0o755
    assert outcome.calls_of("systemctl") == [["daemon-reload"], ["enable", "--now", "k3s-agent.service"]]


def test_the_node_has_the_start_up_taint_from_its_registration(sandbox: Sandbox) -> None:
    """In the unit itself, where no file of the image can override it. The unit refers to the token by its file."""
    assert sandbox.run(user_data(FETCHED)).code == 0
    (line,) = re.findall("^ExecStart=(.*)$", sandbox.unit, re.MULTILINE)
    assert line.split(" ") == [
        "/usr/local/bin/k3s",
        "agent",
        "--token-file=/etc/holdfast/k3s-token",
        f"--node-taint={UNVERIFIED_TAINT}=true:NoSchedule",
    ]


def test_k3s_uses_the_proxy_that_the_image_names(sandbox: Sandbox) -> None:
    """In the files that K3s' own installer uses; a missing one is no error."""
    assert sandbox.run(user_data(FETCHED)).code == 0
    named = re.findall("^EnvironmentFile=(.*)$", sandbox.unit, re.MULTILINE)
    assert named == ["-/etc/default/k3s-agent", "-/etc/sysconfig/k3s-agent"]


def test_the_token_is_only_in_a_file_that_root_reads(sandbox: Sandbox) -> None:
    """No secret is in an argument, an environment, the log or another file."""
    outcome = sandbox.run(user_data(FETCHED))
    assert sandbox.token.read_text() == f"{JOIN_TOKEN}\n"
    assert sandbox.token.stat().st_mode & 0o777 == 0o600
    assert sandbox.token.parent.stat().st_mode & 0o777 == 0o700
    sandbox.token.unlink()
    seen = [outcome.log, str(outcome.calls), (sandbox.here / "environments").read_text(), str(sandbox.tree())]
    assert [secret for secret in SECRETS for text in seen if secret in text] == []
    assert len(outcome.calls) > 20, "the wrappers have recorded nothing"


def test_a_second_run_changes_nothing(sandbox: Sandbox) -> None:
    """And does not download K3s again."""
    assert sandbox.run(user_data(FETCHED)).code == 0
    before = sandbox.tree()
    again = sandbox.run(user_data(FETCHED))
    assert (again.code, sandbox.tree()) == (0, before)
    assert not any("--output" in call for call in again.calls_of("curl"))


def test_an_interrupted_run_is_completed_by_the_next(sandbox: Sandbox) -> None:
    """Half a download and half a file are replaced."""
    assert sandbox.run(user_data(FETCHED)).code == 0
    whole = sandbox.tree()
    for name in whole:
        (sandbox.root / f"{name}.new").write_text("half")
    sandbox.k3s.write_bytes(K3S[:10])
    assert sandbox.run(user_data(FETCHED)).code == 0
    assert sandbox.tree() == whole


# Which K3s


@pytest.mark.parametrize(
    ("machine", "chosen", "address"),
    [
        ("x86_64", FETCHED, "https://k3s.example/v1.33.5%2Bk3s1/k3s"),
        (
            "aarch64",
            replace(FETCHED, k3s_sha256_arm64=K3S_SUM, k3s_sha256_amd64="0" * 64),
            "https://k3s.example/v1.33.5%2Bk3s1/k3s-arm64",
        ),
        (
            "aarch64",
            replace(BAKED, k3s_binary_url="https://m.example/{arch}/k3s", k3s_sha256_arm64=K3S_SUM),
            "https://m.example/arm64/k3s",
        ),
    ],
)
def test_k3s_is_downloaded_for_the_machines_architecture(
    sandbox: Sandbox, machine: str, chosen: BootstrapSettings, address: str
) -> None:
    """With the + of its version encoded: S3 would read it as a space."""
    sandbox.say("uname", machine)
    outcome = sandbox.run(user_data(chosen))
    assert outcome.code == 0, outcome.log
    assert sandbox.requests[0] == ("url", address)
    assert sandbox.k3s.read_bytes() == K3S


@pytest.mark.parametrize("chosen", [BAKED, replace(BAKED, k3s_sha256_amd64=K3S_SUM)], ids=["trusted", "checked"])
def test_without_a_download_address_the_k3s_of_the_image_is_used(sandbox: Sandbox, chosen: BootstrapSettings) -> None:
    sandbox.bake(K3S)
    outcome = sandbox.run(user_data(chosen))
    assert outcome.code == 0, outcome.log
    assert not any("--output" in call for call in outcome.calls_of("curl"))


def test_an_older_k3s_of_the_image_is_replaced_by_the_configured_one(sandbox: Sandbox) -> None:
    sandbox.bake(b"an older one")
    assert sandbox.run(user_data(FETCHED)).code == 0
    assert sandbox.k3s.read_bytes() == K3S


# What keeps a machine from joining


def refused(sandbox: Sandbox, chosen: BootstrapSettings) -> Outcome:
    """Run, and check that nothing was started, nothing unverified was kept, and no secret was printed."""
    outcome = sandbox.run(user_data(chosen))
    assert outcome.code != 0
    assert outcome.calls_of("systemctl") == []
    assert not sandbox.token.exists()
    assert "this machine does not join the cluster" in outcome.log
    assert [secret for secret in SECRETS if secret in f"{outcome.log} {outcome.calls}"] == []
    return outcome


def test_a_download_with_a_wrong_checksum_is_deleted(sandbox: Sandbox) -> None:
    sandbox.say("k3s", K3S + b"and more")
    outcome = refused(sandbox, FETCHED)
    assert "the checksum of the downloaded K3s does not match" in outcome.log
    assert sandbox.tree() == {}


@pytest.mark.parametrize(
    ("machine", "chosen", "baked", "reason"),
    [
        ("x86_64", BAKED, None, "the image has no K3s"),
        ("x86_64", replace(BAKED, k3s_sha256_amd64=K3S_SUM), b"x", "the checksum of the image's /usr/local/bin/k3s"),
        ("aarch64", FETCHED, None, "this machine is arm64, but K3S_SHA256_ARM64 is not set"),
        ("aarch64", replace(BAKED, k3s_sha256_amd64=K3S_SUM), K3S, "this machine is arm64, but K3S_SHA256_ARM64"),
        ("riscv64", BAKED, K3S, "K3s does not support riscv64"),
    ],
)
def test_without_a_trusted_k3s_nothing_runs(
    sandbox: Sandbox, machine: str, chosen: BootstrapSettings, baked: bytes | None, reason: str
) -> None:
    sandbox.say("uname", machine)
    if baked:
        sandbox.bake(baked)
    assert reason in refused(sandbox, chosen).log


def test_version_1_of_the_metadata_service_is_not_used(sandbox: Sandbox) -> None:
    """There is no fallback: without a session, nothing is read."""
    (sandbox.answers / "api/token").unlink()
    outcome = refused(sandbox, FETCHED)
    assert "returned no session (IMDSv2)" in outcome.log
    assert len(outcome.calls_of("curl")) == 1


@pytest.mark.parametrize(
    ("name", "answer", "reason"),
    [
        ("dynamic/instance-identity/document", "<html>", "did not answer in JSON"),
        ("dynamic/instance-identity/document", "[]", "no valid instance id"),
        ("dynamic/instance-identity/document", json.dumps({**DOCUMENT, "instanceId": "$(id)"}), "valid instance id"),
        ("dynamic/instance-identity/document", json.dumps({**DOCUMENT, "privateIp": None}), "valid private address"),
        ("meta-data/services/domain", "evil.example/?", "no valid domain"),
        ("meta-data/placement/region", "", "no valid region"),
        ("meta-data/iam/security-credentials/worker-role", "{}", "no valid session token"),
    ],
)
def test_the_metadata_services_responses_are_validated(sandbox: Sandbox, name: str, answer: str, reason: str) -> None:
    """A proxy in between may respond with anything."""
    sandbox.say(name, answer)
    assert reason in refused(sandbox, FETCHED).log


def test_a_machine_without_a_role_says_so(sandbox: Sandbox) -> None:
    (sandbox.answers / "meta-data/iam/security-credentials/index").unlink()
    log = refused(sandbox, FETCHED).log
    assert "the metadata service did not return meta-data/iam/security-credentials/" in log
    assert "allow the machine's role to read the parameter" in log


def test_ssm_is_retried_but_not_for_ever(sandbox: Sandbox) -> None:
    """Its response is logged each time."""
    sandbox.say("ssm", json.dumps({"__type": "com.amazonaws#AccessDeniedException", "Message": "not authorized"}))
    outcome = refused(sandbox, FETCHED)
    assert outcome.log.count("SSM refuses: AccessDeniedException: 'not authorized'") == 18
    assert outcome.calls_of("sleep") == [["10"]] * 17


def test_a_parameter_that_appears_late_is_still_found(sandbox: Sandbox) -> None:
    right = (sandbox.answers / "ssm").rename(sandbox.answers / "ssm-later")
    sandbox.say("ssm", json.dumps({"__type": "ParameterNotFound"}))
    sandbox.add("sleep", f'cp "{right}" "HERE/answers/ssm"')
    outcome = sandbox.run(user_data(FETCHED))
    assert outcome.code == 0, outcome.log
    assert outcome.log.count("SSM refuses: ParameterNotFound") == 1


@pytest.mark.parametrize(
    "value", ["join-token-secret", "K10abc::server:join-token-secret", f"{JOIN_TOKEN} {JOIN_TOKEN}"]
)
def test_a_token_that_does_not_prove_the_server_is_refused(sandbox: Sandbox, value: str) -> None:
    """With a short token, K3s would trust any server that answers."""
    sandbox.say("ssm", json.dumps({"Parameter": {"Value": value}}))
    assert "has no long K3s token (K10...)" in refused(sandbox, FETCHED).log


@pytest.mark.parametrize("program", ["curl", "python3", "sha256sum", "systemctl"])
def test_a_program_missing_in_the_image_is_named(sandbox: Sandbox, program: str) -> None:
    (sandbox.programs / program).unlink()
    assert f"the image has no {program}" in refused(sandbox, FETCHED).log


# Hostile values


def check_that_no_value_is_a_command(sandbox: Sandbox, usual: list[list[str]], values: list[str]) -> None:
    """The values bypass the settings' grammar, as if it allowed everything."""
    server, parameter, path, *labels = values
    chosen = replace(
        FETCHED,
        k3s_url=server or "-",
        k3s_token_parameter=parameter or "-",
        k3s_binary_url=f"https://k3s.example/{{version}}/{path}",
        node_labels=tuple(labels),
    )
    try:
        text = user_data(chosen)
    except BadSetting:
        reject()  # over 16 KB
    sandbox.reset()
    outcome = sandbox.run(text)
    assert (outcome.code, outcome.calls) == (0, usual), outcome.log
    assert sandbox.options["server"] == (server or "-")
    assert sandbox.options["node-label+"][:-4] == labels
    sent = [json.loads(value) for name, value in sandbox.requests if name == "data-raw"]
    assert sent == [{"Name": parameter or "-", "WithDecryption": True}]


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sandbox, list[list[str]]]:
    """A machine for many runs, and the commands that run on it with harmless values."""
    sandbox = Sandbox(tmp_path_factory.mktemp("machine"))
    return sandbox, sandbox.run(user_data(FETCHED)).calls


@settings(max_examples=8)
@given(st.lists(hostile_text, min_size=200, max_size=200))
def test_hostile_values_run_the_same_commands(usual: tuple[Sandbox, list[list[str]]], values: list[str]) -> None:
    """The list of programs and arguments is the same for any settings: no value becomes code, option or file name."""
    check_that_no_value_is_a_command(*usual, values)


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(hostile_text, min_size=200, max_size=200))
def test_ten_thousand_hostile_values_run_the_same_commands(
    usual: tuple[Sandbox, list[list[str]]], values: list[str]
) -> None:
    check_that_no_value_is_a_command(*usual, values)


@pytest.mark.prove
@pytest.mark.timeout(0)
@settings(max_examples=10_000)
@given(st.lists(hostile_text, min_size=4, max_size=60))
def test_ten_thousand_hostile_machines_run_the_same_commands(
    usual: tuple[Sandbox, list[list[str]]], values: list[str]
) -> None:
    check_that_no_value_is_a_command(*usual, values)


# The request to SSM


@pytest.mark.parametrize(("region", "domain"), [("eu-west-1", "amazonaws.com"), ("cn-north-1", "amazonaws.com.cn")])
def test_the_request_is_signed_as_boto3_would_sign_it(sandbox: Sandbox, region: str, domain: str) -> None:
    """Every relevant header is signed; China has its own domain."""
    sandbox.say("meta-data/placement/region", region)
    sandbox.say("meta-data/services/domain", domain)
    assert sandbox.run(user_data(FETCHED)).code == 0
    request = dict(value.split(": ", 1) for name, value in sandbox.requests if name == "header")
    (body,) = (value for name, value in sandbox.requests if name == "data-raw")
    host = f"ssm.{region}.{domain}"
    assert ("url", f"https://{host}/") in sandbox.requests
    assert request["host"] == host
    assert request["x-amz-target"] == "AmazonSSM.GetParameter"
    assert request["x-amz-security-token"] == CREDENTIALS["Token"]
    _, _, signature = request["authorization"].rpartition("Signature=")
    assert signature == signature_of(request, host, region, body)


def test_the_script_works_with_the_real_curl_over_real_connections(sandbox: Sandbox, tmp_path: Path) -> None:
    """Sessions, headers from stdin, quoting, redirects and TLS work as the script assumes."""
    authority = new_authority(tmp_path / "authority")
    ssm = "ssm.eu-west-1.amazonaws.com"
    with (
        cloud(sandbox.answers) as metadata_port,
        cloud(sandbox.answers, authority.server_context(ssm)) as ssm_port,
        cloud(sandbox.answers, authority.server_context("k3s.example")) as download_port,
    ):
        where = (
            f"--connect-to 169.254.169.254:80:127.0.0.1:{metadata_port} --connect-to {ssm}:443:127.0.0.1:{ssm_port} "
            f"--connect-to k3s.example:443:127.0.0.1:{download_port} --cacert {authority.file} --retry 0"
        )
        sandbox.add("curl", f'exec curl "$@" {where}')
        outcome = sandbox.run(user_data(FETCHED))
    assert outcome.code == 0, outcome.log
    assert sandbox.k3s.read_bytes() == K3S
    assert sandbox.token.read_text() == f"{JOIN_TOKEN}\n"


def test_the_settings_can_be_read_back() -> None:
    """So that an operator can see the settings of a machine in its user data."""
    (blob,) = re.findall("^readonly SETTINGS='(.*)'$", user_data(FETCHED), re.MULTILINE)
    assert json.loads(base64.b64decode(blob)) == {
        "server": "https://10.0.0.10:6443",
        "token_parameter": "/holdfast/k3s-token",
        "labels": [],
        "urls": {"amd64": "https://k3s.example/v1.33.5%2Bk3s1/k3s"},
        "sha256": {"amd64": K3S_SUM},
    }
