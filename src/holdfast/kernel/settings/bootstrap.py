"""Settings for bootstrapping a new worker: which cluster it joins, and with which labels. They go into its user data.

All are optional until the first launch; `fleet/user_data.py` checks that they fit together. There is no setting for the
join token itself: every process on the machine, and everyone who may describe the instance, can read its user data.
"""

import re
from dataclasses import dataclass
from typing import Final

from holdfast.kernel.settings.declaring import Declaration, setting
from holdfast.kernel.settings.kinds import Maybe, Text, WordList

_HOST: Final = r"https://([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:]{2,39}\])(:[0-9]{1,5})?"
# No ? and no @: a URL with a signature or a password is a secret, and user data must not contain secrets.
_PATH: Final = r"(/([A-Za-z0-9._~+=,:-]|%[0-9A-Fa-f]{2}|\{version\}|\{arch\}|\{suffix\})+)+"
PARAMETER: Final = r"[A-Za-z0-9_.-]{1,512}|(?=.{1,512}\Z)(/[A-Za-z0-9_.-]+){1,15}"

# The syntax of a Kubernetes label.
_NAME: Final = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_DOMAIN: Final = r"(?=[^/]{1,253}/)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
_LABEL: Final = rf"({_DOMAIN}/)?{_NAME}=({_NAME})?"

_OURS: Final = re.compile(r"holdfast\.dev/")
_OF_KUBERNETES: Final = re.compile(r"([^/]+\.)?(kubernetes|k8s)\.io/")
# A kubelet refuses to start with any other kubernetes.io label: a node may not assign itself a role.
_FOR_NODES: Final = re.compile(r"([^/]+\.)?(node|kubelet)\.kubernetes\.io/")


@dataclass(frozen=True, slots=True)
class NodeLabels:
    """Labels that a node may set on itself, with distinct keys. The list may be empty."""

    expected: str = (
        "a list of labels key=value with distinct keys, without holdfast.dev/ and, "
        "except node.kubernetes.io/, without kubernetes.io/"
    )

    def parse(self, raw: object) -> tuple[str, ...]:
        if raw in ("", []):
            return ()
        labels = WordList(self.expected, _LABEL).parse(raw)
        keys = [label.partition("=")[0] for label in labels]
        if len(set(keys)) < len(keys) or any(map(_is_taken, keys)):
            raise ValueError(self.expected)
        return labels


def _is_taken(key: str) -> bool:
    return bool(_OURS.match(key) or (_OF_KUBERNETES.match(key) and not _FOR_NODES.match(key)))


def _checksum(arch: str) -> str | None:
    return setting(
        Maybe(Text("a SHA-256 checksum (64 of 0-9 a-f)", "[0-9a-f]{64}")),
        default=None,
        example="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        group="Node bootstrap",
        help_text=f"The checksum of the K3s binary for {arch}. A binary with a different checksum is not run.",
    )


@dataclass(frozen=True, kw_only=True)
class BootstrapSettings(Declaration):
    k3s_url: str | None = setting(
        Maybe(
            Text("one https:// URL of a K3s server, or of a name or load balancer for several, without a path", _HOST)
        ),
        default=None,
        example="https://10.0.0.10:6443",
        group="Node bootstrap",
        help_text="The K3s server that new workers join, or a name or load balancer in front of several.",
    )
    k3s_token_parameter: str | None = setting(
        Maybe(Text("the name of an SSM parameter", PARAMETER)),
        default=None,
        example="/holdfast/k3s-token",
        group="Node bootstrap",
        help_text="The SSM parameter with the join token in its long form (K10…). Workers read it when they boot.",
    )
    k3s_binary_url: str | None = setting(
        Maybe(Text("an https:// URL, optionally with {version}, {arch} and {suffix}", _HOST + _PATH)),
        default=None,
        example="https://github.com/k3s-io/k3s/releases/download/{version}/k3s{suffix}",
        group="Node bootstrap",
        help_text="Where to download K3s ({arch}: amd64 or arm64; {suffix}: empty or -arm64). "
        "If not set, the image must contain it.",
    )
    k3s_version: str | None = setting(
        Maybe(Text("a K3s version", r"v[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}(-[a-z0-9.]{1,20})?\+k3s[0-9]{1,4}")),
        default=None,
        example="v1.33.5+k3s1",
        group="Node bootstrap",
        help_text="The value of {version} in K3S_BINARY_URL.",
    )
    k3s_sha256_amd64: str | None = _checksum("amd64")
    k3s_sha256_arm64: str | None = _checksum("arm64")
    node_labels: tuple[str, ...] = setting(
        NodeLabels(),
        default=(),
        example="team=web,example.com/disk=nvme",
        group="Node bootstrap",
        help_text="Labels for new nodes, in addition to those for instance, zone and market.",
    )
