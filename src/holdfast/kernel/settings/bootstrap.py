"""The settings of a new machine: which cluster it joins, and as what. They end up in its user data.

All may be left out until machines are launched; what belongs together is checked by `fleet/user_data.py`. There is no
setting for the join token itself: user data can be read by every process of the machine, and by anybody who may
describe it.
"""

import re
from dataclasses import dataclass
from typing import Final

from holdfast.kernel.settings.declaring import Declaration, setting
from holdfast.kernel.settings.kinds import Maybe, Text, Words

_HOST: Final = r"https://([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:]{2,39}\])(:[0-9]{1,5})?"
# No ? and no @: an address with a signature or a password in it is a secret, and user data keeps none.
_PATH: Final = r"(/([A-Za-z0-9._~+=,:-]|%[0-9A-Fa-f]{2}|\{version\}|\{arch\}|\{suffix\})+)+"
PARAMETER: Final = r"[A-Za-z0-9_.-]{1,512}|(?=.{1,512}\Z)(/[A-Za-z0-9_.-]+){1,15}"

# Kubernetes' own grammar of a label.
_NAME: Final = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_DOMAIN: Final = r"(?=[^/]{1,253}/)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
_LABEL: Final = rf"({_DOMAIN}/)?{_NAME}=({_NAME})?"

_OURS: Final = re.compile(r"holdfast\.dev/")
_OF_KUBERNETES: Final = re.compile(r"([^/]+\.)?(kubernetes|k8s)\.io/")
# A kubelet does not start with any other label of Kubernetes: it may not give itself a role or a zone of trust.
_FOR_NODES: Final = re.compile(r"([^/]+\.)?(node|kubelet)\.kubernetes\.io/")


@dataclass(frozen=True, slots=True)
class NodeLabels:
    """Labels that a node may give itself, each key once. None are fine."""

    expected: str = (
        "a list of labels key=value, each key once; not of holdfast.dev, and of kubernetes.io only node.kubernetes.io"
    )

    def parse(self, given: object) -> tuple[str, ...]:
        if given in ("", []):
            return ()
        labels = Words(self.expected, _LABEL).parse(given)
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
        help_text=f"The checksum of the K3s binary for {arch}. A binary with another one is not run.",
    )


@dataclass(frozen=True, kw_only=True)
class BootstrapSettings(Declaration):
    k3s_url: str | None = setting(
        Maybe(Text("the https:// address of a K3s server, without a path", _HOST)),
        default=None,
        example="https://10.0.0.10:6443",
        group="Node bootstrap",
        help_text="The K3s server that new machines join.",
    )
    k3s_token_parameter: str | None = setting(
        Maybe(Text("the name of an SSM parameter", PARAMETER)),
        default=None,
        example="/holdfast/k3s-token",
        group="Node bootstrap",
        help_text="The SSM parameter with the join token, in the long form (K10…); machines read it when they start.",
    )
    k3s_binary_url: str | None = setting(
        Maybe(Text("an https:// address; it may hold {version}, {arch} and {suffix}", _HOST + _PATH)),
        default=None,
        example="https://github.com/k3s-io/k3s/releases/download/{version}/k3s{suffix}",
        group="Node bootstrap",
        help_text="Where to get K3s ({arch}: amd64 or arm64; {suffix}: empty or -arm64). Left out: it is in the image.",
    )
    k3s_version: str | None = setting(
        Maybe(Text("a K3s version", r"v[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}(-[a-z0-9.]{1,20})?\+k3s[0-9]{1,4}")),
        default=None,
        example="v1.33.5+k3s1",
        group="Node bootstrap",
        help_text="What {version} stands for in K3S_BINARY_URL.",
    )
    k3s_sha256_amd64: str | None = _checksum("amd64")
    k3s_sha256_arm64: str | None = _checksum("arm64")
    node_labels: tuple[str, ...] = setting(
        NodeLabels(),
        default=(),
        example="team=web,example.com/disk=nvme",
        group="Node bootstrap",
        help_text="Labels for new nodes, beside those that say instance, zone and market.",
    )
