"""Mistakes that were written by reading the code without its tests; `tools/kill_rates.py` measures what notices them."""

from typing import Final

from tools.planted.mutant import Mutant

BLIND: Final = (
    Mutant(
        "a lease is taken over five seconds before it ends, because the clock margin has the wrong sign",
        "holdfast.control.lease",
        "less_than(now.epoch_seconds - SKEW_SECONDS)",
        "less_than(now.epoch_seconds + SKEW_SECONDS)",
        "script:an event comes seconds before the lease of a sleeping process ends",
    ),
    Mutant(
        "a renewal adds its length to the old end of the lease, so the lease becomes longer than 90 s",
        "holdfast.control.lease",
        "    until = _until(now, lease.ends)\n    renewal",
        "    until = _until(lease.until, lease.ends)\n    renewal",
        "script:each launch takes 40 seconds",
    ),
    Mutant(
        "a write counts as our own although another process holds the lease and made the same change",
        "holdfast.control.ledger",
        '            if found is None or found.get("fence") != fence:\n',
        '            if found is None or (found.get("fence") != fence and not _is_written_already(transition.update, found)):\n',
    ),
    Mutant(
        "a lease that expired while acting is renewed before anybody notices that it expired",
        "holdfast.control.lease_holder",
        "        if now >= self.lease.until:\n"
        '            raise LeaseLost("the lease expired while acting; the next tick resumes", None)\n'
        "        if self.lease.is_renewal_due(now):\n"
        "            self.lease = renewed(self._ledger, self.lease, now)\n",
        "        if self.lease.is_renewal_due(now):\n"
        "            self.lease = renewed(self._ledger, self.lease, now)\n"
        "        if now >= self.lease.until:\n"
        '            raise LeaseLost("the lease expired while acting; the next tick resumes", None)\n',
    ),
    Mutant(
        "a call to EC2 is started in the last second of the invocation, with no time left to record it",
        "holdfast.control.deadline",
        "        if left < self.spare_seconds:",
        "        if left <= 0:",
    ),
    Mutant(
        "a cluster that was paused and resumed once cannot be paused again, and the answer still says paused",
        "holdfast.control.pause",
        'set_all(values), ~attr("paused").equals(True))',
        'set_all(values), attr("paused").is_absent())',
    ),
    Mutant(
        "a resume ends a later pause of the same person, which nobody has seen",
        "holdfast.control.pause",
        '    is_this = attr("by").equals(pause.by) & attr("sinceEpoch").equals(pause.since.epoch_seconds)\n',
        '    is_this = attr("by").equals(pause.by)\n',
    ),
    Mutant(
        "a problem that returns after hours is sent at once, because its patience counts from the first time",
        "holdfast.control.notifications",
        "        continues = self.last > 0 and seconds - self.last <= PATIENCE_SECONDS\n",
        "        continues = self.last > 0\n",
    ),
    Mutant(
        "a log query misses failed ticks that are stored under the start of their five minutes",
        "holdfast.control.decision_log",
        '        low = f"{since.epoch_ms // _FAILURES_MS * _FAILURES_MS:013d}" if after is None else f"{after} "\n',
        '        low = f"{since.epoch_ms:013d}" if after is None else f"{after} "\n',
    ),
    Mutant(
        "the next notice of a machine has no launch attempts left, because earlier notices' attempts count",
        "holdfast.fleet.refusals",
        "slot.attempt + 1 >= first_attempt + ATTEMPTS_MOST",
        "slot.attempt + 1 >= ATTEMPTS_MOST",
    ),
    Mutant(
        "an unknown EC2 code counts as a refusal by the age of the plan, not by how long the slot is in doubt",
        "holdfast.fleet.refusals",
        "        if now.seconds_since(slot.doubted) < UNLISTED_SECONDS:\n",
        "        if now.seconds_since(planned) < UNLISTED_SECONDS:\n",
    ),
    Mutant(
        "a launch that EC2 answers with an unknown code is repeated for ever",
        "holdfast.fleet.refusals",
        "    return is_known_code(error.code) and verdict in (Ec2Verdict.AGAIN, Ec2Verdict.NO_ANSWER)\n",
        "    return verdict in (Ec2Verdict.AGAIN, Ec2Verdict.NO_ANSWER)\n",
    ),
    Mutant(
        "one shortage counts again for each action that meets it while the pool is already left out",
        "holdfast.fleet.options",
        "        elif now < earlier.until:\n",
        "        elif now < earlier.until and earlier.action == action:\n",
    ),
    Mutant(
        "a pool's second shortage is forgotten, because its longer back-off is taken for a clock that jumped",
        "holdfast.fleet.capacity_memory",
        "now.plus(CAPACITY_BACKOFF.most_seconds + _SKEW_SECONDS)",
        "now.plus(CAPACITY_BACKOFF.first_seconds + _SKEW_SECONDS)",
    ),
    Mutant(
        "the Node of an earlier machine with the same address is taken for the Node of a new machine",
        "holdfast.cluster.seen",
        "if INSTANCE_LABEL not in node.labels and node.created >= earliest]",
        "if INSTANCE_LABEL not in node.labels]",
    ),
    Mutant(
        "a short outage of Kubernetes launches machines for an old pod that no machine could hold",
        "holdfast.cluster.decide",
        "    waited = 0.0 if isinstance(seen.kube, Unknown) else seen.pending.value.oldest_seconds\n",
        "    waited = seen.pending.value.oldest_seconds\n",
    ),
    Mutant(
        "a look reads the state with eventual consistency and may decide from an older one",
        "holdfast.cluster.observe",
        "batch_get(STATE, keys, consistent=True)",
        "batch_get(STATE, keys)",
    ),
    Mutant(
        "a pod is called impossible although the size of one of the configured types is not known",
        "holdfast.cluster.impossible_pods",
        "    if not known or len(known) < len(types):\n",
        "    if not known:\n",
    ),
    Mutant(
        "a node that somebody else has cordoned since the look passes for one that our action cordoned",
        "holdfast.cluster.nodes",
        "        if now is None or not now.is_unschedulable or now.annotations.get(ACTION_ANNOTATION) != action:\n",
        "        if now is None or not now.is_unschedulable or node.annotations.get(ACTION_ANNOTATION) != action:\n",
    ),
    Mutant(
        "an aborted scale-down forgets that a person cordoned the node, and the spot notice then uncordons it",
        "holdfast.cluster.nodes",
        "        if SPOT_ANNOTATION not in node.annotations:  # else the spot notice needs it when it undoes its own cordon\n",
        "        if FOREIGN_CORDON_ANNOTATION in node.annotations:\n",
        "script:a hint comes for a node that a person has cordoned",
    ),
    Mutant(
        "a second cordon of ours erases the record that a person had cordoned the node first",
        "holdfast.cluster.nodes",
        "    return node.is_unschedulable and (not ours or FOREIGN_CORDON_ANNOTATION in node.annotations)\n",
        "    return node.is_unschedulable and not ours\n",
        "script:a hint comes for a node that a person has cordoned",
    ),
    Mutant(
        "a machine's acceptance tag is checked in the list of this look instead of being read again",
        "holdfast.cluster.lease_holder",
        "        if not is_condemned and self._is_marked_now(instance):\n",
        "        if not is_condemned and worker is not None and worker.is_marked:\n",
    ),
    Mutant(
        "a machine launched late in a long scale-up counts as gone when EC2 does not know it yet",
        "holdfast.cluster.lease_holder",
        "            return state.up.phase_since or state.up.started\n",
        "            return state.up.started\n",
    ),
    Mutant(
        "a slot gets a new token right after a takeover, while the previous holder may still use the old one",
        "holdfast.cluster.lease_holder",
        "        is_token_ours = not self.lease.took_over and asked >= self.seen.state.bump_after\n",
        "        is_token_ours = not self.lease.took_over or asked >= self.seen.state.bump_after\n",
    ),
    Mutant(
        "a repeated launch of a replacement sends other tags with the same token after another action began",
        "holdfast.cluster.lease_holder",
        "                SEQUENCE_TAG: str(0 if action.startswith(ACTION_PREFIX) else self.seen.state.action_seq),\n",
        "                SEQUENCE_TAG: str(self.seen.state.action_seq),\n",
    ),
    Mutant(
        "a tick trusts its look although another process held the lease and acted after it",
        "holdfast.cluster.state",
        '        return self.fence != earlier.fence + 1 or earlier.lock_owner != ""\n',
        "        return self.fence != earlier.fence + 1\n",
    ),
    Mutant(
        "one failed step of a spot notice stops the urgent steps of all other interrupted machines",
        "holdfast.cluster.tick",
        '                        self.stopped, self.error = f"{step.kind}: {error}", error\n',
        '                        self.stopped, self.error = f"{step.kind}: {error}", error\n'
        "                    break\n",
    ),
    Mutant(
        "a drain that has just finished is aborted because it took too long",
        "holdfast.cluster.scaling.scale_down",
        "    if overdue is not None and not down.committed and not _is_drained(down, seen, worker, rules):\n",
        "    if overdue is not None and not down.committed:\n",
    ),
    Mutant(
        "a committed machine that is still listed counts as a worker that stays, so the minimum is not kept",
        "holdfast.cluster.scaling.scale_down",
        "    leaving = {instance, *down.committed}\n",
        "    leaving = {instance}\n",
    ),
    Mutant(
        "the second target of a scale-down inherits the start of the first target's drain",
        "holdfast.cluster.scaling.scale_down",
        '    update = attr("scaleDownCommitted").add_elements([instance]) + attr("scaleDownDrainStartedEpoch").remove()\n',
        '    update = attr("scaleDownCommitted").add_elements([instance])\n',
    ),
    Mutant(
        "a machine is committed although pods on it are still terminating or must not be evicted",
        "holdfast.cluster.scaling.scale_down_act",
        "    if not _drain_view(holder, worker.node).is_drained:\n",
        "    if _drain_view(holder, worker.node).to_evict:\n",
    ),
    Mutant(
        "one machine that ended early sends the others of its scale-up to the clean-up before they could join",
        "holdfast.cluster.scaling.scale_up",
        "    if waiting and all(has_ended(seen, instance) for instance in waiting):\n",
        "    if waiting and any(has_ended(seen, instance) for instance in waiting):\n",
    ),
    Mutant(
        "the stored number of workers misses a launched machine while Kubernetes is unknown",
        "holdfast.cluster.scaling.scale_up_act",
        "    workers = holder.seen.state.timers.workers + 1\n",
        "    workers = holder.seen.counted\n",
    ),
    Mutant(
        "a new machine that EC2 does not list yet counts as ended",
        "holdfast.cluster.joining",
        "    return instance in seen.gone or (machine is not None and machine.state in STOPPED)\n",
        "    return instance in seen.gone or machine is None or machine.state in STOPPED\n",
    ),
    Mutant(
        "an interruption that arrives while the node is being uncordoned is dropped",
        "holdfast.cluster.spot.notice",
        "        return not (is_interruption and (is_milder or phase == SpotPhase.OPENING))\n",
        "        return not (is_interruption and is_milder)\n",
    ),
    Mutant(
        "the replacement for a second notice of a machine starts with the last token of the first one",
        "holdfast.cluster.spot.notice",
        '        new["firstAttempt"] = earlier.slot.attempt + 1 if earlier.slot else earlier.first_attempt\n',
        '        new["firstAttempt"] = earlier.slot.attempt if earlier.slot else earlier.first_attempt\n',
    ),
    Mutant(
        "a node is uncordoned before it is stored that its machine stays, so another process may terminate it",
        "holdfast.cluster.spot.notice_handler",
        "        if self._phase(step.instance) is not SpotPhase.OPENING:\n"
        "            self._enter(step.instance, self._phase(step.instance), SpotPhase.OPENING)\n"
        "        if self._phase(step.instance) is SpotPhase.OPENING:\n"
        "            self._uncordon(self.seen.notices[step.instance])\n"
        "            self._close(step.instance)\n",
        "        self._uncordon(self.seen.notices[step.instance])\n"
        "        if self._phase(step.instance) is not SpotPhase.OPENING:\n"
        "            self._enter(step.instance, self._phase(step.instance), SpotPhase.OPENING)\n"
        "        if self._phase(step.instance) is SpotPhase.OPENING:\n"
        "            self._close(step.instance)\n",
    ),
    Mutant(
        "a notice is closed although its replacement was planned since the look",
        "holdfast.cluster.spot.notice_handler",
        "        same &= replacement.is_absent() if is_open else replacement.equals(str(noticed.replacement))\n",
        "        if not is_open:\n            same &= replacement.equals(str(noticed.replacement))\n",
    ),
    Mutant(
        "the replacement for a rebalance hint exceeds the maximum by one, because the hint's worker is not counted",
        "holdfast.cluster.spot.workflow",
        "            others = seen.most_expected - 1 if notice.is_leaving else seen.most_expected\n",
        "            others = seen.most_expected - 1\n",
        "script:a hint comes at the maximum",
    ),
    Mutant(
        "a replacement's join timeout counts from its plan although EC2 had no capacity for minutes",
        "holdfast.cluster.spot.replacement",
        '{"plan": plan, "launchedEpoch": holder.now().epoch_seconds})',
        '{"plan": plan})',
    ),
    Mutant(
        "a process that has lost the lease still plans a replacement, and the maximum is exceeded",
        "holdfast.cluster.spot.replacement",
        '    holder.ports.store.transact([fence, UpdateItem(STATE, key, update, attr("replacement").is_absent())])\n',
        '    holder.ports.store.update(STATE, key, update, attr("replacement").is_absent())\n',
    ),
    Mutant(
        "an interruption of another cluster's machine is stored because one of its tags is the same",
        "holdfast.cluster.spot.events",
        "    return all(tags.get(name) == value for name, value in wanted.items())\n",
        "    return any(tags.get(name) == value for name, value in wanted.items())\n",
        "script:EC2 interrupts another cluster's machines",
    ),
    Mutant(
        "machines are collected although Kubernetes knows only a few of ours, as after an old backup",
        "holdfast.cluster.sweeping.sweep",
        "    if unused and accepted >= len(unused):\n",
        "    if unused and accepted:\n",
    ),
    Mutant(
        "a NotReady node that a person has cordoned is replaced",
        "holdfast.cluster.sweeping.sweep",
        "        and not (worker.node is not None and is_cordoned_by_others(worker.node))\n",
        "",
    ),
    Mutant(
        "a Node that became Ready again since the look is deleted",
        "holdfast.cluster.sweeping.sweep_act",
        "    if node is not None and is_left_over(holder.seen, node):\n",
        "    if node is not None:\n",
    ),
    Mutant(
        "an interruption is noted before it is recorded in the job, so a sweep in between drops the note",
        "holdfast.jobs.intake.tracker",
        "        recorded = record(self.store, checked, self.received_by)\n        if event.type is InternalType.INTERRUPTED:\n            # Not earlier: a sweep in between would find a failure without an interruption, and drop the note.\n            note_interrupted(self.store, event.key, now)\n",
        "        if event.type is InternalType.INTERRUPTED:\n            note_interrupted(self.store, event.key, now)\n        recorded = record(self.store, checked, self.received_by)\n        if event.type is InternalType.INTERRUPTED:\n",
    ),
    Mutant(
        "a concurrent event without a status is overwritten, because only rank and status are compared",
        "holdfast.jobs.intake.item_writes",
        'for name in ("dl", "rk")]',
        'for name in ("rk", "status")]',
    ),
    Mutant(
        "a job that the runner fleet reported before GitHub did is not counted in its run until it ends",
        "holdfast.jobs.intake.record",
        '    is_new = job.old is None or "created_at" not in job.old\n',
        "    is_new = job.old is None\n",
    ),
    Mutant(
        "a redelivery after a crash between two writes does not complete the run",
        "holdfast.jobs.intake.record",
        "    if not (job.is_duplicate or is_new or is_linked or is_unmarked):\n",
        "    if not (is_new or is_linked or is_unmarked):\n",
    ),
    Mutant(
        "a deployment that was added while a review was being stored is never decided by it",
        "holdfast.jobs.intake.handlers",
        "    gates = deployments.gates_of(registered_run(context.store, key) or {})\n",
        "",
    ),
    Mutant(
        "a late queued event takes over a completed job that an older version stored without a rank",
        "holdfast.jobs.model.job",
        '        is_first = ranked.is_absent() & attr("status").is_absent()\n'
        "        conditions.append(ranked.less_than(_rank_below(event)) | is_first)\n",
        "        conditions.append(ranked.less_than(_rank_below(event)) | ranked.is_absent())\n",
    ),
    Mutant(
        "the next scheduling attempt keeps the time at which the earlier machine was terminated",
        "holdfast.jobs.model.job",
        '    "terminated_ms",\n    "interrupted_ms",\n)',
        '    "interrupted_ms",\n)',
    ),
    Mutant(
        "a plan that is reported again for the same attempt erases the machine of that attempt",
        "holdfast.jobs.model.job",
        "    if scheduling.attempt > known:\n",
        "    if scheduling.attempt >= known:\n",
    ),
    Mutant(
        "a job that an older version counted as done is open again once its own item has expired",
        "holdfast.jobs.model.run_jobs",
        '    return number in run.get("done", ()) if job is None else job.get("status") == Status.COMPLETED\n',
        '    return job is not None and job.get("status") == Status.COMPLETED\n',
    ),
    Mutant(
        "a job that was queued and held back in the same millisecond gets a machine without approval",
        "holdfast.jobs.model.deployment",
        "    if waiting_ms is None or queued_ms > waiting_ms:\n",
        "    if waiting_ms is None or queued_ms >= waiting_ms:\n",
    ),
    Mutant(
        "a machine's paid time ends with its job although the machine was terminated later",
        "holdfast.jobs.model.durations",
        "        return _between(begin, self.terminated or self.completed or now)\n",
        "        return _between(begin, self.completed or self.terminated or now)\n",
    ),
    Mutant(
        "a filtered page without a match ends the list although older jobs are left to examine",
        "holdfast.jobs.read.queries",
        "            return FoundItems(_in_order(kept, query), page.cursor, examined)\n",
        "            return FoundItems(_in_order(kept, query), page.cursor if kept else None, examined)\n",
    ),
    Mutant(
        "the end of a polled job is recorded in the job first, so a crash leaves it open in its run",
        "holdfast.jobs.sweep.polling",
        "    was_missing = _register_if_missing(store, event, run)\n",
        "    was_missing = False\n",
    ),
    Mutant(
        "the delivery at which a sweep stopped counts as settled and is never redelivered",
        "holdfast.jobs.sweep.lost_webhooks",
        "            if not self._budget.spend():\n                return\n            with suppress(GitHubRefused):",
        "            if not self._budget.spend():\n                self._lost.pop()\n                return\n            with suppress(GitHubRefused):",
    ),
    Mutant(
        "a delivery's age counts from its last redelivery, so one that always fails is redelivered for ever",
        "holdfast.jobs.sweep.lost_webhooks",
        "    made = made_at(record.guid)\n",
        "    made = None\n",
    ),
    Mutant(
        "the status of a newer attempt is written into the item of an older attempt of the run",
        "holdfast.jobs.sweep.live_run",
        "    if seen is None or seen.run_attempt != key.run_attempt:\n",
        "    if seen is None or seen.run_attempt < key.run_attempt:\n",
    ),
    Mutant(
        "a claim that is taken over after a crash requests the rerun without reading the run's attempt",
        "holdfast.jobs.sweep.retry",
        '    return _carried_out(store, github, key, {**run, "retry": claim}, policy, now, is_resumed=True)\n',
        '    return _carried_out(store, github, key, {**run, "retry": claim}, policy, now, is_resumed=False)\n',
    ),
    Mutant(
        "a claim that is resumed after midnight is counted a second time, against the next day's limit",
        "holdfast.jobs.sweep.retry",
        '        day = run["retry"].get("day", now.date())\n',
        "        day = now.date()\n",
    ),
    Mutant(
        "a real failure on the second machine is rerun because the first machine was interrupted",
        "holdfast.jobs.sweep.retry",
        "        and is_taken_down(job)\n",
        "",
    ),
    Mutant(
        "jobs of a rerun whose response was lost get spot machines again",
        "holdfast.jobs.sweep.retry",
        '    return before.get("retry", {}).get("state") in (INTENDED, "requested")\n',
        '    return bool(before.get("retry", {}).get("state") == "requested")\n',
    ),
    Mutant(
        "an increment is sent again after a server error, although DynamoDB may have executed it",
        "holdfast.adapters.dynamodb.calls",
        '    return not error.sent or error.code in _NOT_EXECUTED or error.code == "TransactionCanceledException"\n',
        '    known = error.code in _NOT_EXECUTED or error.code == "TransactionCanceledException"\n'
        "    return not error.sent or known or error.status >= 500\n",
    ),
    Mutant(
        "a transaction has no token of its own, so a retry after a lost response is executed twice",
        "holdfast.adapters.dynamodb.store",
        "            # The same token on every attempt: DynamoDB does not execute a repeated transaction twice.\n"
        '            "ClientRequestToken": str(uuid4()),\n',
        "",
    ),
    Mutant(
        "keys that DynamoDB left unread at the deadline count as items that do not exist",
        "holdfast.adapters.dynamodb.store",
        "            if not waits.wait():\n"
        '                left = len(unread[name]["Keys"])\n'
        '                raise StoreUnavailable(f"DynamoDB BatchGetItem on {name}: {left} keys still unread at the deadline")\n',
        "            if not waits.wait():\n                return items\n",
    ),
    Mutant(
        "work that fails after its first write is not rolled back, and half of it is committed",
        "holdfast.adapters.sqlite.writer",
        "            if transaction.writes_begun > before or not self._connection.in_transaction:\n",
        "            if not self._connection.in_transaction:\n",
    ),
    Mutant(
        "the second page of a query runs past the end of the requested range",
        "holdfast.adapters.sqlite.queries",
        "        low, high = (low, None) if query.reverse else (None, high)\n",
        "        low, high = (None, high) if query.reverse else (low, None)\n",
    ),
    Mutant(
        "an item whose expiry was extended since it was listed as expired is removed",
        "holdfast.adapters.embedded",
        "if old is not None and table.is_expired(old, now)]",
        "if old is not None]",
    ),
    Mutant(
        "a node is changed although an annotation that should be absent was added since it was read",
        "holdfast.adapters.kube.patches",
        "    return makes_the_map or None in change.expected.values()\n",
        "    return makes_the_map\n",
    ),
    Mutant(
        "a watch that the server ends with an error continues from the same version instead of a new list",
        "holdfast.adapters.kube.follower",
        "            raise _Lost(str(refusal))\n",
        "            raise KubeUnavailable(str(refusal))\n",
    ),
    Mutant(
        "a next page with an unexpected URL looks like the end of the delivery log",
        "holdfast.adapters.github.calls",
        "        if path is None or not _CURSOR.fullmatch(cursor):\n"
        '            raise GitHubUnavailable(f"{self}: the next page is not at a URL of this API; not followed")\n'
        "        return cursor\n",
        "        return cursor if path is not None and _CURSOR.fullmatch(cursor) else None\n",
    ),
    Mutant(
        "a write that collides with another writer counts as refused by its condition and is not tried again",
        "holdfast.adapters.aws.s3",
        '_CONDITION_FAILED: Final = frozenset({"PreconditionFailed", "412"})\n',
        '_CONDITION_FAILED: Final = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict"})\n',
    ),
)
