"""The simulated EC2 behind EC2's own query protocol, so that boto3 can be pointed at it.

No emulator keeps EC2's promises about tokens, capacity and what is listed when; this one does, because the simulated
EC2 does. It speaks the five calls that Holdfast makes, and nothing else.
"""

import base64
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl
from xml.etree.ElementTree import Element, SubElement, tostring

from holdfast.kernel.ids import InstanceId
from holdfast.ports.machines import LaunchOrder, Machine, MachineError, MachineState, Market, Subnet
from holdfast.simulator.world.ec2 import SimulatedEc2

_NAMESPACE: Final = "http://ec2.amazonaws.com/doc/2016-11-15/"
_STATE_CODES: Final = {
    MachineState.PENDING: "0",
    MachineState.RUNNING: "16",
    MachineState.SHUTTING_DOWN: "32",
    MachineState.TERMINATED: "48",
    MachineState.STOPPING: "64",
    MachineState.STOPPED: "80",
}
# EC2 blames itself for missing capacity.
_SERVER_FAULTS: Final = frozenset({"InsufficientInstanceCapacity", "InternalError", "Unavailable"})

Parameters = Mapping[str, str]


@contextmanager
def serving(ec2: SimulatedEc2, port: int = 0) -> Iterator[str]:
    """Serve until the block ends; yields the endpoint's address."""
    lock = threading.Lock()  # the simulated world is not thread-safe

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
            parameters = dict(parse_qsl(body, keep_blank_values=True))
            with lock:
                status, answer = answered(ec2, parameters)
            self.send_response(status)
            self.send_header("Content-Type", "text/xml;charset=UTF-8")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def date_time_string(self, timestamp: float | None = None) -> str:
            """The world's time, not ours."""
            now = ec2.server_time()
            return super().date_time_string(timestamp if now is None else now.epoch_seconds)

        def log_message(self, *_: Any) -> None:
            """Silent: the simulated EC2 records the calls."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answered(ec2: SimulatedEc2, parameters: Parameters) -> tuple[int, bytes]:
    """The HTTP status and the body for one call."""
    action = parameters.get("Action", "")
    calls = {
        "RunInstances": _run_instances,
        "TerminateInstances": _terminate_instances,
        "CreateTags": _create_tags,
        "DescribeInstances": _describe_instances,
        "DescribeSubnets": _describe_subnets,
    }
    if action not in calls:
        return 400, _error(MachineError("InvalidAction", f"The action {action} is not valid for this web service"))
    try:
        root = Element(f"{action}Response", xmlns=_NAMESPACE)
        SubElement(root, "requestId").text = "00000000-0000-0000-0000-000000000000"
        calls[action](ec2, parameters, root)
    except MachineError as error:
        return 500 if error.code in _SERVER_FAULTS else 400, _error(error)
    return 200, _document(root)


def _run_instances(ec2: SimulatedEc2, parameters: Parameters, root: Element) -> None:
    if (parameters.get("MinCount"), parameters.get("MaxCount")) != ("1", "1"):
        raise MachineError("InvalidParameterValue", "this EC2 launches one machine at a time")
    subnet_id = parameters.get("SubnetId", "")
    subnets = ec2.subnets([subnet_id])
    template = f"{parameters.get('LaunchTemplate.LaunchTemplateId')}:{parameters.get('LaunchTemplate.Version')}"
    order = LaunchOrder(
        token=parameters.get("ClientToken", ""),
        template=template,
        instance_type=parameters.get("InstanceType", ""),
        market=Market(parameters.get("InstanceMarketOptions.MarketType", Market.ON_DEMAND)),
        subnet_id=subnet_id,
        zone=subnets[0].zone if subnets else "",
        tags=_tags(parameters),
        user_data=base64.b64decode(parameters.get("UserData", "")).decode(),
    )
    _reservation(root, [ec2.launch(order)])


def _terminate_instances(ec2: SimulatedEc2, parameters: Parameters, root: Element) -> None:
    instances = SubElement(root, "instancesSet")
    for instance in _numbered(parameters, "InstanceId"):
        ec2.terminate(InstanceId(instance))
        item = SubElement(instances, "item")
        SubElement(item, "instanceId").text = instance
        _state(item, "currentState", MachineState.SHUTTING_DOWN)


def _create_tags(ec2: SimulatedEc2, parameters: Parameters, root: Element) -> None:
    tags = {}
    for number, key in enumerate(_numbered(parameters, "Tag", ".Key"), start=1):
        tags[key] = parameters.get(f"Tag.{number}.Value", "")
    for resource in _numbered(parameters, "ResourceId"):
        ec2.tag(InstanceId(resource), tags)
    SubElement(root, "return").text = "true"


def _describe_instances(ec2: SimulatedEc2, parameters: Parameters, root: Element) -> None:
    wanted = [InstanceId(text) for text in _numbered(parameters, "InstanceId")]
    if wanted:
        found = ec2.found(wanted)
        missing = sorted(set(wanted) - {machine.id for machine in found})
        if missing:
            text = f"The instance IDs '{', '.join(missing)}' do not exist"
            raise MachineError("InvalidInstanceID.NotFound", text)
    else:
        found = ec2.tagged(_tag_filters(parameters))
    start = int(parameters.get("NextToken", "0"))
    size = int(parameters.get("MaxResults", "1000"))
    reservations = SubElement(root, "reservationSet")
    for machine in found[start : start + size]:
        _reservation(SubElement(reservations, "item"), [machine])
    if start + size < len(found):
        SubElement(root, "nextToken").text = str(start + size)


def _describe_subnets(ec2: SimulatedEc2, parameters: Parameters, root: Element) -> None:
    found = SubElement(root, "subnetSet")
    wanted = list(_numbered(parameters, "SubnetId"))
    for subnet in ec2.subnets(wanted):
        item = SubElement(found, "item")
        SubElement(item, "subnetId").text = subnet.id
        SubElement(item, "availabilityZone").text = subnet.zone
        SubElement(item, "availableIpAddressCount").text = str(subnet.free_addresses)
    _check_all_found(wanted, ec2.subnets(wanted))


def _check_all_found(wanted: list[str], found: list[Subnet]) -> None:
    missing = set(wanted) - {subnet.id for subnet in found}
    if missing:
        raise MachineError("InvalidSubnetID.NotFound", f"The subnet ID '{min(missing)}' does not exist")


def _reservation(parent: Element, machines: list[Machine]) -> None:
    SubElement(parent, "reservationId").text = "r-00000000000000000"
    instances = SubElement(parent, "instancesSet")
    for machine in machines:
        item = SubElement(instances, "item")
        SubElement(item, "instanceId").text = machine.id
        _state(item, "instanceState", machine.state)
        SubElement(item, "instanceType").text = machine.instance_type
        SubElement(item, "launchTime").text = machine.launched.iso()
        SubElement(SubElement(item, "placement"), "availabilityZone").text = machine.zone
        SubElement(item, "subnetId").text = machine.subnet_id
        if machine.private_ip is not None:
            SubElement(item, "privateIpAddress").text = machine.private_ip
        if machine.market is Market.SPOT:
            SubElement(item, "instanceLifecycle").text = "spot"
        if machine.state_reason is not None:
            reason = SubElement(item, "stateReason")
            SubElement(reason, "code").text = machine.state_reason.code
            SubElement(reason, "message").text = f"{machine.state_reason.code}: {machine.state_reason.message}"
        tags = SubElement(item, "tagSet")
        for name, value in machine.tags.items():
            tag = SubElement(tags, "item")
            SubElement(tag, "key").text = name
            SubElement(tag, "value").text = value


def _state(parent: Element, name: str, state: MachineState) -> None:
    element = SubElement(parent, name)
    SubElement(element, "code").text = _STATE_CODES[state]
    SubElement(element, "name").text = str(state)


def _tags(parameters: Parameters) -> dict[str, str]:
    """The tags for the instance; those for its volumes are the same."""
    for number in range(1, 10):
        prefix = f"TagSpecification.{number}"
        if parameters.get(f"{prefix}.ResourceType") == "instance":
            keys = {name: text for name, text in parameters.items() if name.startswith(f"{prefix}.Tag.")}
            names = (name.removesuffix(".Key") for name in keys if name.endswith(".Key"))
            return {keys[f"{name}.Key"]: keys.get(f"{name}.Value", "") for name in names}
    return {}


def _tag_filters(parameters: Parameters) -> dict[str, str]:
    filters = {}
    for number in range(1, 20):
        name = parameters.get(f"Filter.{number}.Name", "")
        if name.startswith("tag:"):
            filters[name.removeprefix("tag:")] = parameters.get(f"Filter.{number}.Value.1", "")
    return filters


def _numbered(parameters: Parameters, name: str, part: str = "") -> Iterator[str]:
    number = 1
    while f"{name}.{number}{part}" in parameters:
        yield parameters[f"{name}.{number}{part}"]
        number += 1


def _error(error: MachineError) -> bytes:
    root = Element("Response")
    inner = SubElement(SubElement(root, "Errors"), "Error")
    SubElement(inner, "Code").text = error.code
    SubElement(inner, "Message").text = error.message
    SubElement(root, "RequestID").text = "00000000-0000-0000-0000-000000000000"
    return _document(root)


def _document(root: Element) -> bytes:
    text: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return text
