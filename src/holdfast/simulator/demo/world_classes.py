"""The classes and functions that the file of the simulated world can contain."""

from typing import Final

from holdfast.kernel.instants import Instant
from holdfast.ports.github import DeliveryRecord
from holdfast.ports.kube import Node, Pod, PodPhase, Resources, Taint
from holdfast.ports.machines import LaunchOrder, Machine, MachineState, Market, StateReason, Subnet
from holdfast.simulator.demo.ordinary_day import OrdinaryDay
from holdfast.simulator.demo.organisation import DemoRunner, Organisation, OutboxGitHub
from holdfast.simulator.demo.stored_objects import StoredObjects
from holdfast.simulator.world import ec2, github, k3s
from holdfast.simulator.world.github_objects import JobPlan, RunDetails, RunnerReport, SimJob, SimRun, Webhook
from holdfast.simulator.world.timeline import Timeline
from holdfast.simulator.world.world import Bootstrap, SimulatedPrometheus, World

WORLD_OBJECTS: Final = StoredObjects(
    mutable=(
        OrdinaryDay,
        World,
        Timeline,
        ec2.SimulatedEc2,
        k3s.SimulatedK3s,
        SimulatedPrometheus,
        Organisation,
        OutboxGitHub,
        DemoRunner,
        SimRun,
        SimJob,
        Webhook,
    ),
    frozen=(
        Bootstrap,
        DeliveryRecord,
        ec2.Ec2Habits,
        Instant,
        JobPlan,
        LaunchOrder,
        Machine,
        MachineState,
        Market,
        Node,
        Pod,
        PodPhase,
        Resources,
        RunDetails,
        RunnerReport,
        StateReason,
        Subnet,
        Taint,
        k3s.DisruptionBudget,
        k3s.Workload,
    ),
    functions={
        "ec2.ignored": ec2.ignored,
        "ec2.never": ec2.never,
        "github.ignored": github.ignored,
        "k3s.ignored": k3s.ignored,
    },
)
