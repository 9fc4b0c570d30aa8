"""The permissions in the shipped IAM policies and Kubernetes role, so that a missing one can be named.

A test compares this with the files in deploy/, which are not part of the installed package.
"""

import re
from dataclasses import dataclass
from typing import Final

from holdfast.kernel.errors import HoldfastError

_DENIED_CODES: Final = ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthorizationError")
_DENIED: Final = re.compile(r"not authorized to perform: ([a-z0-9-]+:[A-Za-z0-9]+)(?: on resource: (\S+))?")
_RUNNING: Final = "deploy/iam/holdfast-policy.json"
_MIGRATION: Final = "deploy/iam/migration-policy.json"


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a policy. `kinds`: parts of resource names that distinguish those with the same action."""

    sid: str
    actions: tuple[str, ...]
    kinds: tuple[str, ...] = ("",)
    policy: str = _RUNNING


_RUN: Final = ("ec2:RunInstances",)
STATEMENTS: Final = (
    Statement("Look", ("ec2:DescribeInstances", "ec2:DescribeLaunchTemplateVersions", "ec2:DescribeSubnets")),
    Statement("LaunchByThisTemplate", _RUN, ("launch-template/",)),
    Statement("LaunchWithWhatTheTemplateNames", _RUN, ("image/", "snapshot/", "key-pair/", "security-group/")),
    Statement("LaunchInTheseSubnets", _RUN, ("subnet/",)),
    Statement("LaunchWithNewDisks", _RUN, ("volume/",)),
    Statement("LaunchWithNewAddresses", _RUN, ("network-interface/",)),
    Statement("LaunchAsOurs", _RUN, ("instance/",)),
    Statement("TagWhatIsLaunched", ("ec2:CreateTags",), ("instance/", "volume/")),
    Statement("GiveTheWorkersTheirRole", ("iam:PassRole",)),
    Statement("MarkOursAsAccepted", ("ec2:CreateTags",), ("instance/",)),
    Statement("TerminateOurs", ("ec2:TerminateInstances",)),
    Statement(
        "Remember",
        (
            "dynamodb:BatchGetItem",
            "dynamodb:ConditionCheckItem",
            "dynamodb:DeleteItem",
            "dynamodb:GetItem",
            "dynamodb:PutItem",
            "dynamodb:Query",
            "dynamodb:UpdateItem",
        ),
    ),
    Statement(
        "CheckTheTables",
        ("dynamodb:DescribeContinuousBackups", "dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive"),
    ),
    Statement("ReadOwnSecrets", ("ssm:GetParameter",)),
    Statement("DecryptOwnSecrets", ("kms:Decrypt",)),
    Statement("HearEvents", ("sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage")),
    Statement("TellOperators", ("sns:Publish",)),
    Statement("ListTheBucket", ("s3:ListBucket",), policy=_MIGRATION),
    Statement("ReadAndWriteWebhooks", ("s3:GetObject", "s3:PutObject"), policy=_MIGRATION),
    Statement("TakeNotesAway", ("s3:DeleteObject",), policy=_MIGRATION),
    Statement("SetTheLifecycle", ("s3:GetLifecycleConfiguration", "s3:PutLifecycleConfiguration"), policy=_MIGRATION),
)


@dataclass(frozen=True, slots=True)
class Denied:
    """A missing permission."""

    action: str
    resource: str

    def __str__(self) -> str:
        return f"{self.action} is denied" + (f" on {self.resource}" if self.resource else "")

    @property
    def fix(self) -> str:
        found = [statement for statement in STATEMENTS if self.action in statement.actions]
        exact = [each for each in found if any(kind in self.resource for kind in each.kinds)] or found
        if not exact:
            return f"allow {self.action} for the role that Holdfast runs as"
        names = " or ".join(dict.fromkeys(statement.sid for statement in exact))
        return f"add statement {names} of {exact[0].policy} to the role"


def denied(action: str, code: str, message: str) -> Denied | None:
    """The permission AWS denied, or None for another error. The message may name a different action than `action`."""
    match = _DENIED.search(message)
    if match is not None:
        return Denied(match[1], (match[2] or "").rstrip(".,"))
    return Denied(action, "") if any(code.endswith(suffix) for suffix in _DENIED_CODES) else None


def denied_by(action: str, error: HoldfastError) -> Denied | None:
    """The same for our own error, which contains AWS's code and message."""
    return denied(action, "AccessDenied" if "AccessDenied" in str(error) else "", str(error))


@dataclass(frozen=True, slots=True)
class RoleRule:
    """One rule of the role in deploy/kubernetes/role.yaml; without a namespace it applies to the whole cluster."""

    resource: str
    verbs: tuple[str, ...]
    group: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.resource}{where}"


ROLE_RULES: Final = (
    RoleRule("nodes", ("get", "list", "watch", "patch", "delete")),
    RoleRule("pods", ("get", "list", "watch")),
    RoleRule("pods/eviction", ("create",)),
    RoleRule("poddisruptionbudgets", ("list",), group="policy"),
    RoleRule("secrets", ("delete",), namespace="kube-system"),
)
