"""Bugs that a seed once found, planted again. Each has a pinned fault script in `scripts.py`."""

from typing import Final

from tools.planted.mutant import Mutant

FOUND: Final = (
    Mutant(
        "a throttled termination ends the tick with an error",
        "holdfast.cluster.lease_holder",
        'raise NotDone(f"{instance} could not be terminated", stops=is_unreachable(error)) from error',
        "raise error",
        "script:a termination is throttled",
    ),
    Mutant(
        "an event whose machine cannot be looked up ends with an error that nobody retries",
        "holdfast.cluster.spot.events",
        'raise NoLook(f"EC2 did not describe {event.instance}: {error}; the event must be delivered again") from error',
        "raise error",
        "script:an event's machine cannot be looked up",
    ),
    Mutant(
        "a replacement and a scale-up are promised from one count",
        "holdfast.cluster.decide",
        "            if is_changed:\n                continue\n",
        "",
        "script:a hint comes as pods have waited long enough",
    ),
    Mutant(
        "a process that has slept acts on what it saw before",
        "holdfast.cluster.tick",
        "if holder.seen.state.has_moved_since(self.seen.state):",
        "if False:",
        "script:it sleeps between its look and its lease",
    ),
    Mutant(
        "the number in a replacement's tags follows the state",
        "holdfast.cluster.lease_holder",
        "str(0 if action.startswith(ACTION_PREFIX) else self.seen.state.action_seq)",
        "str(self.seen.state.action_seq)",
        "script:a scale-up begins while a replacement is in doubt",
    ),
    Mutant(
        "the last spare worker is committed though others have died",
        "holdfast.cluster.scaling.scale_down",
        "    if len(others) < policy.min_workers:\n",
        "    if False:\n",
        "script:another machine dies during a drain",
    ),
    Mutant(
        "a machine that was launched late counts as forgotten by EC2",
        "holdfast.cluster.lease_holder",
        "return state.up.phase_since or state.up.started",
        "return state.up.started",
        "script:a machine is launched late, and EC2 does not list it",
    ),
    Mutant(
        "a process that has nothing to do keeps the lease",
        "holdfast.cluster.tick",
        "    run.release(holder)\n",
        "    if run.done:\n        run.release(holder)\n",
        "script:an event and a tick come at once",
    ),
    Mutant(
        "a worker that is accepted in the same tick is not counted",
        "holdfast.cluster.scaling.scale_down",
        "if worker.id not in leaving and (worker.is_accepted or worker.is_ready)]",
        "if worker.id not in leaving and worker.is_accepted]",
        "script:a replacement is Ready as a zone's last worker is drained",
    ),
    Mutant(
        "an interruption that was closed because the machine stays covers the next one",
        "holdfast.cluster.spot.notice",
        'is_over = is_as_grave and not (is_interruption and found.get("stays", False))',
        "is_over = is_as_grave",
        "script:a clock that is ahead gives a machine back",
    ),
    Mutant(
        "an interruption is stored with the time of our clock",
        "holdfast.cluster.spot.events",
        "noticed = event.at if event.at.seconds_since(now) <= AHEAD_SECONDS else now",
        "noticed = cluster.writes.clock.now()",
        "script:a clock that is behind notes an interruption",
    ),
    Mutant(
        "a machine that EC2 has forgotten is not known to be gone",
        "holdfast.cluster.spot.notice_handler",
        "return is_old and ruling_on(error.code).verdict is Ec2Verdict.UNKNOWN_MACHINE",
        "return False",
        "script:EC2 forgets a machine before its replacement comes",
    ),
)
