"""Checkers: each watches the world from outside and checks one invariant of the protocol.

They receive events and remember what they need: none scans the whole world at each call.
"""

from holdfast.simulator.checkers.base import Checker, Violation
from holdfast.simulator.checkers.draining import CHECKERS as DRAINING
from holdfast.simulator.checkers.jobs import CHECKERS as _JOBS
from holdfast.simulator.checkers.launching import CHECKERS as LAUNCHING
from holdfast.simulator.checkers.lease import CHECKERS as LEASE
from holdfast.simulator.checkers.liveness import CHECKERS as LIVENESS
from holdfast.simulator.checkers.pausing import CHECKERS as PAUSING
from holdfast.simulator.checkers.retries import CHECKERS as _RETRIES
from holdfast.simulator.checkers.spot import CHECKERS as SPOT
from holdfast.simulator.checkers.terminating import CHECKERS as TERMINATING

JOBS: tuple[type[Checker], ...] = (*_JOBS, *_RETRIES)
EVERY: tuple[type[Checker], ...] = (*LEASE, *LAUNCHING, *TERMINATING, *DRAINING, *SPOT, *PAUSING, *LIVENESS, *JOBS)

__all__ = ["EVERY", "JOBS", "Checker", "Violation"]
