"""What follows from each EC2 error code. One table; no other file interprets codes.

The code decides, not the HTTP status: EC2 reports missing capacity with 500, which is as definitive as any 400.

A definitive error settles only its own call. An earlier call with the same token whose response was lost may still have
succeeded, because EC2 checks permissions before the token: then only the tags of running machines show it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Ec2Verdict(StrEnum):
    NOT_HERE = "not-here"  # no capacity for this type, zone and market now: try another
    AGAIN = "again"  # certainly not carried out: retry with the same token
    NO_ANSWER = "no-answer"  # may have been carried out: repeat the same order with the same token
    ALREADY_TERMINATED = "already-terminated"  # this token's machine was launched and is gone
    MISMATCH = "mismatch"  # the token was used for another order: a new attempt is needed
    OPERATOR = "operator"  # refused until a person acts
    UNKNOWN_MACHINE = "unknown-machine"  # EC2 does not know the id, or not yet

    @property
    def is_definitive(self) -> bool:
        """Whether this call is settled, so that another attempt may follow it."""
        return self in _DEFINITIVE


_DEFINITIVE: Final = frozenset(
    {Ec2Verdict.NOT_HERE, Ec2Verdict.ALREADY_TERMINATED, Ec2Verdict.MISMATCH, Ec2Verdict.OPERATOR}
)


@dataclass(frozen=True, slots=True)
class Ruling:
    """The verdict, and the remedy if an operator can do something about it."""

    verdict: Ec2Verdict
    remedy: str = ""


def ruling_on(code: str) -> Ruling:
    """The ruling on an error code. An unknown code counts as no answer: repeating the same token is always safe."""
    # CloudTrail and an instance's state reason prefix the same codes with the side that is at fault.
    plain = code.removeprefix("Client.").removeprefix("Server.")
    if plain in CODES:
        return CODES[plain]
    families = (ruling for prefix, ruling in FAMILIES.items() if plain.startswith(prefix))
    return next(families, Ruling(Ec2Verdict.NO_ANSWER))


def _rulings(verdict: Ec2Verdict, remedies: Mapping[str, tuple[str, ...]]) -> dict[str, Ruling]:
    return {code: Ruling(verdict, remedy) for remedy, codes in remedies.items() for code in codes}


_PERMISSION: Final = "give the role that Holdfast runs as the permission that the message names"
_CREDENTIALS: Final = "check the credentials, the region and the clock of the machine that Holdfast runs on"
_ACCOUNT: Final = "the account cannot launch machines at the moment: see its notices, or contact AWS support"
_IMAGE: Final = "name an image in the launch template that exists in this region and that this account may use"
_TEMPLATE: Final = "name a launch template and a version that exist in this region"
_SUBNET: Final = "name subnets that exist in this region"
_IN_TEMPLATE: Final = "correct what the message names, in the launch template or in the settings of types and subnets"
_QUOTA: Final = "ask AWS for a higher quota, or free what is unused"
_TAGS: Final = "use fewer, shorter or other tags: the message names the rule"

_NOT_HERE: Final = {
    "": (
        "InsufficientInstanceCapacity",
        "InsufficientCapacity",
        "InsufficientCapacityOnOutpost",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientVolumeCapacity",
        "InsufficientAddressCapacity",
        "ReservationCapacityExceeded",
        "UnfulfillableCapacity",
        "Unsupported",  # this zone does not have this type
        "VolumeTypeNotAvailableInZone",
    ),
    # Spot and on-demand have separate quotas, and so have instance families: another pool may have room.
    _QUOTA: (
        "InstanceLimitExceeded",
        "MaxFleetCountExceeded",
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
    ),
    "raise the maximum spot price in the launch template, or remove it": ("SpotMaxPriceTooLow",),
    "make the subnet larger, or name more subnets": ("InsufficientFreeAddressesInSubnet",),
    # Only spot needs this role, so on-demand still works; Karpenter counts it as missing capacity, too.
    "create the role that spot needs: aws iam create-service-linked-role --aws-service-name spot.amazonaws.com": (
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
    ),
}

_AGAIN: Final = {
    "": (
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "EC2ThrottledException",
        "TooManyRequestsException",
        "BandwidthLimitExceeded",
        "PriorRequestNotComplete",
        "SlowDown",
        # botocore's names for a request that was never sent: no connection, or no credentials yet.
        "EndpointConnectionError",
        "ConnectTimeoutError",
        "ProxyConnectionError",
        "CredentialRetrievalError",
        "MetadataRetrievalError",
        "TokenRetrievalError",
    )
}

# Unknown codes count as no answer as well. These are listed because they are known to occur.
_NO_ANSWER: Final = {
    "": (
        "InternalError",
        "InternalFailure",
        "ServerInternal",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "Unavailable",
        "RequestTimeout",
        "RequestTimeoutException",
        "ConnectionClosedError",
        "ConnectionError",
        "HTTPClientError",
        "IncompleteReadError",
        "ReadTimeoutError",
        "ResponseParserError",
        "ResponseStreamingError",
        "SSLError",
    )
}

_OPERATOR: Final = {
    _PERMISSION: ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException"),
    _CREDENTIALS: (
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSecurity.RequestHasExpired",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "NoCredentialsError",
        "NoRegionError",
        "PartialCredentialsError",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    ),
    _ACCOUNT: ("Blocked", "PendingVerification"),
    "subscribe to the image's product in AWS Marketplace, or enable the region for this account": ("OptInRequired",),
    "turn off the machine's termination protection": ("OperationNotPermitted",),
    _SUBNET: ("InvalidSubnet", "InvalidZone.NotFound"),
    _IN_TEMPLATE: (
        "InvalidBlockDeviceMapping",
        "InvalidGroup.NotFound",
        "InvalidGroupId.Malformed",
        "InvalidInput",
        "InvalidInstanceAttributeValue",
        "InvalidInstanceType",
        "InvalidInterface.IpAddressLimitExceeded",
        "InvalidKeyPair.NotFound",
        "InvalidParameter",
        "InvalidParameterCombination",
        "InvalidParameterDependency",
        "InvalidParameterValue",
        "InvalidPlacementGroup.Unknown",
        "InvalidSecurityGroupID.NotFound",
        "InvalidSnapshot.NotFound",
        "InvalidUserData.Malformed",
        "MissingParameter",
        "ParamValidationError",
        "SecurityGroupsPerInstanceLimitExceeded",
        "UnknownParameter",
        "UnsupportedOperation",
        "UnsupportedTenancy",
        "VPCIdNotSpecified",
    ),
    _QUOTA: (
        "AddressLimitExceeded",
        "MaxIOPSLimitExceeded",
        "NetworkInterfaceLimitExceeded",
        "ResourceLimitExceeded",
        "VolumeLimitExceeded",
    ),
    _TAGS: ("InvalidTagKey.Malformed", "TagLimitExceeded", "TagPolicyViolation"),
}

CODES: Final[Mapping[str, Ruling]] = {
    **_rulings(Ec2Verdict.NOT_HERE, _NOT_HERE),
    **_rulings(Ec2Verdict.AGAIN, _AGAIN),
    **_rulings(Ec2Verdict.NO_ANSWER, _NO_ANSWER),
    **_rulings(Ec2Verdict.OPERATOR, _OPERATOR),
    "IdempotentInstanceTerminated": Ruling(Ec2Verdict.ALREADY_TERMINATED),
    "IdempotentParameterMismatch": Ruling(Ec2Verdict.MISMATCH),
    "InvalidInstanceID.NotFound": Ruling(Ec2Verdict.UNKNOWN_MACHINE),
    "InvalidInstanceID.Malformed": Ruling(Ec2Verdict.UNKNOWN_MACHINE),
}

# Codes by prefix: EC2 adds suffixes such as .NotFound, .Malformed, .Unavailable and .VersionNotFound.
FAMILIES: Final[Mapping[str, Ruling]] = {
    "InvalidAMIID.": Ruling(Ec2Verdict.OPERATOR, _IMAGE),
    "InvalidKMSKey.": Ruling(Ec2Verdict.OPERATOR, "let the role use the key that the image's disks are encrypted with"),
    "InvalidLaunchTemplate": Ruling(Ec2Verdict.OPERATOR, _TEMPLATE),
    "InvalidSubnetID.": Ruling(Ec2Verdict.OPERATOR, _SUBNET),
}
