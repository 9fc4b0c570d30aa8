"""The consequence of each of EC2's error codes."""

import pytest

from holdfast.fleet.ec2_errors import CODES, FAMILIES, Ec2Verdict, ruling_on

# Spelled out, not taken from the table: a code that moves to another class must be moved here too.
EXPECTED = {
    Ec2Verdict.NOT_HERE: [
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
        "InstanceLimitExceeded",
        "InsufficientAddressCapacity",
        "InsufficientCapacity",
        "InsufficientCapacityOnOutpost",
        "InsufficientFreeAddressesInSubnet",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientVolumeCapacity",
        "MaxFleetCountExceeded",
        "MaxSpotInstanceCountExceeded",
        "ReservationCapacityExceeded",
        "SpotMaxPriceTooLow",
        "UnfulfillableCapacity",
        "Unsupported",
        "VcpuLimitExceeded",
        "VolumeTypeNotAvailableInZone",
    ],
    Ec2Verdict.AGAIN: [
        "BandwidthLimitExceeded",
        "ConnectTimeoutError",
        "CredentialRetrievalError",
        "EC2ThrottledException",
        "EndpointConnectionError",
        "MetadataRetrievalError",
        "PriorRequestNotComplete",
        "ProxyConnectionError",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TokenRetrievalError",
        "TooManyRequestsException",
    ],
    Ec2Verdict.NO_ANSWER: [
        "ConnectionClosedError",
        "ConnectionError",
        "HTTPClientError",
        "IncompleteReadError",
        "InternalError",
        "InternalFailure",
        "ReadTimeoutError",
        "RequestTimeout",
        "RequestTimeoutException",
        "ResponseParserError",
        "ResponseStreamingError",
        "SSLError",
        "ServerInternal",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "Unavailable",
    ],
    Ec2Verdict.ALREADY_TERMINATED: ["IdempotentInstanceTerminated"],
    Ec2Verdict.MISMATCH: ["IdempotentParameterMismatch"],
    Ec2Verdict.UNKNOWN_MACHINE: ["InvalidInstanceID.Malformed", "InvalidInstanceID.NotFound"],
    Ec2Verdict.OPERATOR: [
        "AccessDenied",
        "AccessDeniedException",
        "AddressLimitExceeded",
        "AuthFailure",
        "Blocked",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAMIID.Malformed",
        "InvalidAMIID.NotFound",
        "InvalidAMIID.Unavailable",
        "InvalidBlockDeviceMapping",
        "InvalidClientTokenId",
        "InvalidGroup.NotFound",
        "InvalidGroupId.Malformed",
        "InvalidInput",
        "InvalidInstanceAttributeValue",
        "InvalidInstanceType",
        "InvalidInterface.IpAddressLimitExceeded",
        "InvalidKMSKey.InvalidState",
        "InvalidKeyPair.NotFound",
        "InvalidLaunchTemplateId.Malformed",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateId.VersionNotFound",
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidParameter",
        "InvalidParameterCombination",
        "InvalidParameterDependency",
        "InvalidParameterValue",
        "InvalidPlacementGroup.Unknown",
        "InvalidSecurity.RequestHasExpired",
        "InvalidSecurityGroupID.NotFound",
        "InvalidSignatureException",
        "InvalidSnapshot.NotFound",
        "InvalidSubnet",
        "InvalidSubnetID.Malformed",
        "InvalidSubnetID.NotFound",
        "InvalidTagKey.Malformed",
        "InvalidUserData.Malformed",
        "InvalidZone.NotFound",
        "MaxIOPSLimitExceeded",
        "MissingAuthenticationToken",
        "MissingParameter",
        "NetworkInterfaceLimitExceeded",
        "NoCredentialsError",
        "NoRegionError",
        "OperationNotPermitted",
        "OptInRequired",
        "ParamValidationError",
        "PartialCredentialsError",
        "PendingVerification",
        "RequestExpired",
        "ResourceLimitExceeded",
        "SecurityGroupsPerInstanceLimitExceeded",
        "SignatureDoesNotMatch",
        "TagLimitExceeded",
        "TagPolicyViolation",
        "UnauthorizedOperation",
        "UnknownParameter",
        "UnrecognizedClientException",
        "UnsupportedOperation",
        "UnsupportedTenancy",
        "VPCIdNotSpecified",
        "VolumeLimitExceeded",
    ],
}
ROWS = [(code, verdict) for verdict, codes in EXPECTED.items() for code in codes]


@pytest.mark.parametrize(("code", "verdict"), ROWS, ids=[code for code, _ in ROWS])
def test_the_code_means(code: str, verdict: Ec2Verdict) -> None:
    assert ruling_on(code).verdict is verdict


@pytest.mark.parametrize("code", ["SomethingNew", "Unknown", "", "500", "503", "InvalidAMIIDX", "insufficientcapacity"])
def test_an_unknown_code_is_ambiguous(code: str) -> None:
    """The launch may have happened: only repeating the same token is safe."""
    assert ruling_on(code).verdict is Ec2Verdict.NO_ANSWER
    assert not ruling_on(code).verdict.is_definitive


def test_every_code_of_the_table_is_tested_above() -> None:
    tested = {code for code, _ in ROWS}
    assert set(CODES) <= tested
    assert all(any(code.startswith(family) for code in tested) for family in FAMILIES)


def test_every_code_that_needs_an_operator_says_what_to_do() -> None:
    assert [code for code, verdict in ROWS if verdict is Ec2Verdict.OPERATOR and not ruling_on(code).remedy] == []


def test_a_quota_is_tried_elsewhere_and_still_says_what_to_do() -> None:
    assert "quota" in ruling_on("VcpuLimitExceeded").remedy
    assert "create-service-linked-role" in ruling_on("AuthFailure.ServiceLinkedRoleCreationNotPermitted").remedy


def test_the_attempt_changes_only_after_a_definitive_response() -> None:
    definitive = {verdict for verdict in Ec2Verdict if verdict.is_definitive}
    assert definitive == {
        Ec2Verdict.NOT_HERE,
        Ec2Verdict.ALREADY_TERMINATED,
        Ec2Verdict.MISMATCH,
        Ec2Verdict.OPERATOR,
    }


def test_a_client_or_server_prefix_of_a_code_changes_nothing() -> None:
    assert ruling_on("Server.InsufficientInstanceCapacity").verdict is Ec2Verdict.NOT_HERE
    assert ruling_on("Client.UnauthorizedOperation").verdict is Ec2Verdict.OPERATOR
