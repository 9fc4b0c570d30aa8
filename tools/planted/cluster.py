"""Mistakes in the cluster autoscaler."""

from typing import Final

from tools.planted.mutant import Mutant

_C: Final = "holdfast.cluster"

CLUSTER: Final = (
    Mutant(
        "the fence does not grow",
        f"{_C}.lease",
        ' + attr("fence").plus(1)',
        ' + attr("fence").plus(0)',
        "scale-up",
    ),
    Mutant(
        "writes do not test the fence",
        f"{_C}.ledger",
        'condition = attr("fence").equals(fence) & transition.condition',
        "condition = transition.condition",
        "seed:23",
        says="a process that lost its lease writes all the same",
    ),
    Mutant(
        "a held lease is taken",
        f"{_C}.lease",
        "ledger.acquire(update, is_free | is_mine | is_expired)",
        'ledger.acquire(update, is_free | is_mine | is_expired | attr("fence").exists())',
        "seed:1",
        says="safe by the fence, but two act at once, and one in vain",
    ),
    Mutant(
        "the lease is not given back",
        f"{_C}.lease",
        'values = {"lockOwner": "", "lockUntilEpoch": 0, **timers.stored()}',
        "values = timers.stored()",
        "scale-up",
    ),
    Mutant(
        "the lease lasts an hour",
        f"{_C}.lease",
        "LEASE_SECONDS: Final = 90",
        "LEASE_SECONDS: Final = 3600",
        "scale-up",
    ),
    Mutant(
        "an end leaves the flag set",
        f"{_C}.scale_up",
        'update = set_all({"scalingInProgress": False, "lastScaleEpoch": now.epoch_seconds, "workerCount": workers})',
        'update = set_all({"lastScaleEpoch": now.epoch_seconds, "workerCount": workers})',
        "scale-up",
    ),
    Mutant(
        "a failed scale-up starts the cooldown",
        f"{_C}.scale_up",
        '{"scalingInProgress": False, "upFailures": failures, "upBackoffUntilEpoch": until.epoch_seconds}',
        '{"scalingInProgress": False, "upFailures": failures, "upBackoffUntilEpoch": until.epoch_seconds,'
        ' "lastScaleEpoch": now.epoch_seconds}',
        "join-timeout",
    ),
    Mutant(
        "a failed scale-up has no back-off",
        f"{_C}.scale_up",
        "until = now.plus(FAILURE_BACKOFF.ceiling_seconds(failures))",
        "until = now",
        "join-timeout",
    ),
    Mutant(
        "the cooldown is forgotten",
        f"{_C}.decide",
        "holds=cooldown >= policy.cooldown_up_seconds",
        "holds=cooldown >= 0",
        "seed:2",
    ),
    Mutant(
        "the token is forgotten",
        f"{_C}.scale_up",
        'hashlib.sha256(f"{cluster}\\0{action}\\0{number}\\0{attempt}".encode())',
        'hashlib.sha256(__import__("os").urandom(8))',
        "seed:7",
        "a launch whose answer was lost is made again under another token",
    ),
    Mutant(
        "the token is the same for each slot",
        f"{_C}.scale_up",
        'f"{cluster}\\0{action}\\0{number}\\0{attempt}"',
        'f"{cluster}\\0{action}\\0{attempt}"',
        "scale-up",
    ),
    Mutant(
        "the machine is launched before the plan is stored",
        f"{_C}.scale_up_act",
        "holder.take(scale_up.begin(holder.action, step.slots, holder.hands.template, holder.now()))",
        "holder.launch(holder.action, step.slots[0], 0, holder.hands.template);"
        " holder.take(scale_up.begin(holder.action, step.slots, holder.hands.template, holder.now()))",
        "scale-up",
        "record after instead of before",
    ),
    Mutant(
        "an answer that was lost counts as a refusal",
        f"{_C}.scale_up_act",
        "if said in (Ec2Verdict.AGAIN, Ec2Verdict.NO_ANSWER):",
        "if said in (Ec2Verdict.AGAIN,):",
        "crash:scale-up",
    ),
    Mutant(
        "a slot adopts any machine of its action",
        f"{_C}.scale_up",
        "machine = launched.get((number, slot.attempt))",
        "machine = next(iter(launched.values()), None)",
        "crash:scale-up",
    ),
    Mutant(
        "nothing is adopted, and the next attempt is made at once",
        f"{_C}.scale_up",
        "slot = Slot(option.subnet_id, option.zone, option.market, option.instance_type, up.slots[number].attempt + 1)",
        "slot = Slot(option.subnet_id, option.zone, option.market, option.instance_type, up.slots[number].attempt)",
        "partial-launch",
        "the fallback keeps the attempt, and so the token",
    ),
    Mutant(
        "the action ends without a clean-up",
        f"{_C}.scale_up",
        "    for instance in failed:\n        if instance not in seen.gone:\n"
        '            yield TerminateUnjoined(instance=instance, because="it did not join in time")\n'
        "    if all(instance in seen.gone for instance in failed):\n",
        "    if True:\n",
        "join-timeout",
    ),
    Mutant(
        "a machine that EC2 does not know yet counts as gone",
        f"{_C}.holder",
        "if self.seen.now.seconds_since(self._first_known(instance)) < UNKNOWN_IS_GONE_SECONDS:",
        "if False:",
        "seed:77",
    ),
    Mutant(
        "a look from before the lease is trusted",
        f"{_C}.tick",
        "if state.has_moved_since(seen.state):",
        "if False:",
        "seed:104",
        says="found by seed 23: a process that had paused acted on what it saw 20 minutes before",
    ),
    Mutant(
        "it is terminated without a commit",
        f"{_C}.scale_down_act",
        "        holder.take(scale_down.commit(holder.down(), step.instance))\n        return True",
        "        holder.terminate(step.instance)\n        return False",
        "scale-down",
    ),
    Mutant(
        "neither look sees the pods that are leaving",
        f"{_C}.drain",
        "return not self.to_evict and not self.leaving and self.blocked_by is None",
        "return not self.to_evict and self.blocked_by is None",
        "scale-down-in-one-go",
    ),
    Mutant(
        "a commit can be aborted",
        f"{_C}.scale_down",
        '    update = attr("scaleDownCompletedInstanceIds").set_to(completed)\n'
        '    update += attr("scaleDownCommitted").drop_elements([instance])',
        '    update = attr("scaleDownCommitted").drop_elements([instance])',
        "scale-down",
        "what was committed is forgotten, not completed",
    ),
    Mutant(
        "an aborted drain leaves its cordon",
        f"{_C}.scale_down_act",
        "            self._holder.nodes.open_again(worker.node)\n        return False",
        "            self._holder.nodes.accept(worker.node)\n        return False",
        "drain-blocked",
        "skip the uncordon",
    ),
    Mutant(
        "critical pods are evicted",
        f"{_C}.drain",
        '        return f"its priority class is {pod.priority_class}"',
        "        return None",
        "seed:4",
    ),
    Mutant(
        "an interruption waits for the lease",
        f"{_C}.tick",
        "        if isinstance(step, UrgentStep):\n            try:",
        "        if isinstance(step, UrgentStep) and seen.state.lock_owner == '' and not seen.state.is_acting:\n"
        "            try:",
        "spot-during-scale-up",
    ),
    Mutant(
        "a rebalance hint is taken for an interruption",
        f"{_C}.events",
        '"EC2 Instance Rebalance Recommendation": SpotKind.REBALANCE',
        '"EC2 Instance Rebalance Recommendation": SpotKind.INTERRUPTION',
        "seed:1",
    ),
    Mutant(
        "a hint is acted on before its replacement is in service",
        f"{_C}.spot",
        "    elif notice.replacement is not Replacement.ACCEPTED:\n        yield from _replacement_steps",
        "    elif notice.replacement is Replacement.OPEN:\n        yield from _replacement_steps",
        "rebalance",
    ),
    Mutant(
        "a notice is forgotten when it is told",
        f"{_C}.spot_act",
        "store.transact([listed, UpdateItem(",
        "store.transact([UpdateItem(",
        "spot",
        "it is stored, and nobody finds it",
    ),
    Mutant(
        "a scale-down under way is not carried on",
        f"{_C}.decide",
        "    if state.down is not None:\n        return list(",
        "    if False:\n        return list(",
        "scale-down",
    ),
)
