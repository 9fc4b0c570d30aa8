"""Mistakes in the job tracker."""

from typing import Final

from tools.planted.mutant import Mutant

_J: Final = "holdfast.jobs"

JOBS: Final = (
    Mutant(
        "a latecomer writes its status",
        f"{_J}.job",
        "        conditions.append(ranked.less_than(_rank_below(event)) | is_first)\n",
        "",
        says="the rank is not in the condition of the quick write",
        where="seed:1",
    ),
    Mutant(
        "the fold takes whatever comes last",
        f"{_J}.job",
        "    if here > there:\n",
        "    if here != there:\n",
        where="seed:1",
    ),
    Mutant(
        "the index of the status is not updated",
        f"{_J}.job",
        '"GSI1-PK": by_status(event.key.installation_id, event.status),',
        '"GSI1-PK": by_status(event.key.installation_id, "queued"),',
        "plain-job",
    ),
    Mutant(
        "a job is opened that is done",
        f"{_J}.run",
        'return update, ~attr("done").contains(event.key.job_id)',
        "return update, None",
        says="a late start counts once more",
        where="seed:33",
    ),
    Mutant(
        "what is done stays open",
        f"{_J}.run",
        'moved = [attr("done").add_elements(job_id), attr("open").drop_elements(job_id), failed_or_not]',
        'moved = [attr("done").add_elements(job_id), failed_or_not]',
        "plain-job",
    ),
    Mutant(
        "ends are counted by ADD",
        f"{_J}.run",
        'moved = [attr("done").add_elements(job_id), attr("open").drop_elements(job_id), failed_or_not]',
        'moved = [attr("completed").plus(1), attr("open").drop_elements(job_id), failed_or_not]',
        "plain-job",
        "a number instead of the set of job ids: nobody can tell whose end was counted",
    ),
    Mutant(
        "the webhook is acknowledged though its run was not written",
        f"{_J}.record",
        "    run = _write_run(store, event, job) if event.run is not None else None\n",
        "    run = None\n"
        "    with suppress(__import__('holdfast.kernel.errors', fromlist=['*']).StoreUnavailable):\n"
        "        run = _write_run(store, event, job) if event.run is not None else None\n",
        where="seed:26",
    ),
    Mutant(
        "a repetition does not make sure of the history",
        f"{_J}.record",
        "    write_history(store, event, job, received_by)\n",
        "    if not job.is_duplicate:\n        write_history(store, event, job, received_by)\n",
        "crash:plain-job",
        "whoever wrote the job died before it came to the history",
    ),
    Mutant(
        "the history is keyed by our own clock",
        f"{_J}.history",
        '"SK": f"{event.at.iso()}#{event.type}#{event.mark}"',
        '"SK": f"{event.received_at.iso()}#{event.type}#{event.mark}"',
        "crash:plain-job",
        "a delivery that comes again does not meet its own entry",
    ),
    Mutant(
        "the attempt is not in the run's key",
        f"{_J}.keys",
        "return _joined(self.installation_id, self.run_id, self.run_attempt)",
        "return _joined(self.installation_id, self.run_id, 1)",
        "interrupted-job",
    ),
    Mutant(
        "the installation is not in the job's key",
        f"{_J}.keys",
        "return _joined(self.installation_id, self.job_id)",
        "return _joined(1, self.job_id)",
        "plain-job",
    ),
    Mutant(
        "a job that names its deployment makes it pending again",
        f"{_J}.deployment",
        "    return together([gate, if_absent(facts)])",
        "    return together([gate, set_all(facts)])",
        says="a delivery that comes again undoes the decision",
        where="seed:1",
    ),
    Mutant(
        "a review that comes before its deployment is forgotten",
        f"{_J}.record",
        "        decide(store, event.run, run, [gate_of(event)], event.received_at)\n",
        "        pass\n",
        where="seed:3",
    ),
    Mutant(
        "a retry is not claimed",
        f"{_J}.retry",
        "        store.transact([claimed, PutItem(LOGS, note)])\n",
        "        store.transact([PutItem(LOGS, note)])\n",
        "interrupted-job",
    ),
    Mutant(
        "a claim is taken from another",
        f"{_J}.retry",
        'attr("retry").set_to(claim), attr("retry").is_absent())',
        'attr("retry").set_to(claim))',
        where="sleep:interrupted-job",
    ),
    Mutant(
        "who takes over a claim asks GitHub without a look",
        f"{_J}.retry",
        "        if is_resumed and _has_moved(github.run(key.installation_id, repository, key.run_id), key):\n",
        "        if False:\n",
        "crash:interrupted-job",
        "GitHub had been asked, and the answer was lost",
    ),
    Mutant(
        "a late one overwrites what was settled",
        f"{_J}.retry",
        'attr("retry").set_to(settled), attr("retry").equals(run["retry"]))',
        'attr("retry").set_to(settled))',
        where="sleep:interrupted-job",
    ),
    Mutant(
        "an attempt that somebody else has run again is run again",
        f"{_J}.retry",
        'return Decision(Verdict.NO, f"somebody has run it again: attempt {key.run_attempt} is not the latest")',
        "pass",
        "rerun-by-hand",
        "found by seed 4",
    ),
    Mutant(
        "whatever failed is run again",
        f"{_J}.retry",
        "    others = [job for job in failed if not was_taken_down(job)]\n",
        "    others: list[Item] = []\n",
        where="seed:5",
    ),
    Mutant(
        "what spot took down gets spot again",
        f"{_J}.retry",
        'return before.get("retry", {}).get("state") in (INTENDED, "requested")',
        "return False",
        "interrupted-job",
    ),
    Mutant(
        "a run that is not over is given up",
        f"{_J}.interrupted",
        "            if verdict is Verdict.NOT_YET:\n                waiting.add(run)\n                continue\n",
        "",
        "crash:interrupted-job",
        "its note is deleted, and nobody looks again",
    ),
    Mutant(
        "an interruption is noted before it is told",
        f"{_J}.ingest",
        "        recorded = record(self.store, checked, self.received_by)\n",
        "        if event.type is InternalType.INTERRUPTED:\n"
        "            note_interrupted(self.store, event.key, now)\n"
        "            return record(self.store, checked, self.received_by)\n"
        "        recorded = record(self.store, checked, self.received_by)\n",
        "seed:348",
        "found by seed 348: a sweep came in between, and dropped the note",
    ),
    Mutant(
        "the cursor is moved before a delivery was asked for",
        f"{_J}.recovery",
        "        swept.examined += len(records)\n",
        "        swept.examined += len(records)\n"
        "        if page.cursor is None and records:\n"
        "            place = _moved(store, key, place, page.records[0].id, None)\n",
        "lost-webhook",
    ),
    Mutant(
        "the cursor is moved by whoever comes last",
        f"{_J}.recovery",
        'return store.update(STATE, key, update + set_all({"n": version + 1}), seen).new',
        'return store.update(STATE, key, update + set_all({"n": version + 1})).new',
        says="two sweeps at once",
        where="sleep:lost-webhook",
    ),
    Mutant(
        "a delivery that got no answer is not asked for",
        f"{_J}.recovery",
        "_HOPELESS: Final = frozenset({400, 413, 415})",
        "_HOPELESS: Final = frozenset({0, 400, 413, 415, 503, 504})",
        "lost-webhook",
    ),
    Mutant(
        "runs under way are not asked about",
        "holdfast.entrypoints.github_loops",
        "            if budget.calls < RUNS_MOST:\n",
        "            if budget.calls >= 0:\n",
        "unannounced-job",
    ),
    Mutant(
        "an end that was asked for is counted after the job",
        f"{_J}.polling",
        "                count_end(store, event)\n",
        "",
        "crash:unannounced-job",
        "no sweep asks about a job that has ended, and who dies in between leaves its run open",
    ),
    Mutant(
        "the jobs of a run that never started stay open",
        f"{_J}.run",
        '    if item.get("conclusion") != STARTUP_FAILURE or "updated_at" not in item:\n',
        "    if True:\n",
        where="seed:3",
    ),
)
