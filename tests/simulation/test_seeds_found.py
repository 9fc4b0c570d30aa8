"""What the simulator found: each seed that once broke an invariant, and what was wrong.

Each seed is run whole, as it was when it broke.
"""

import pytest

from holdfast.entrypoints.simulation import Question, answer

FOUND = {
    14: "EndsWell: EC2's refusal to terminate a machine that spot was taking ended the whole tick",
    9: "EndsWell: an event whose machine could not be looked up ended with an error that nobody retries",
    17: "MaxKept: a replacement and a scale-up were promised from one count, and passed the maximum together",
    23: "MaxKept: a process that had paused took the lease and acted on what it had seen 20 minutes before",
    35: "AcceptedKept: at the join timeout, with Kubernetes away, machines that had joined were terminated",
    66: "AzKept: a machine on its way counted as spare, and the only one in service was drained",
    105: "TokenOnce: the number in a replacement's tags followed the state, so the order changed under its token",
    158: "MinKept: spot took the others during a drain, and the last one was committed all the same",
    201: "CleanBeforeClear: a machine launched late in its action counted as forgotten by EC2, and as gone",
    344: "CleanBeforeClear: the same, by a clock that had jumped",
    290: "LeaseShort: a handler was done, and kept the lease",
    675: "CooldownExact: the same, by one that had paused since its look",
    454: "CooldownExact: the checker took the mending of a clock's mistake for one",
    800: "AzKept: replacements were accepted and a zone's last machine committed in one tick, by one look",
    10005: "SpotIndependent: a clock that was ahead gave a machine back; told again of it, nobody closed it",
    10621: "CursorKept: what failed again since a sweep began passed for settled, and its first failure was passed",
    11346: "CountersExact: who found a job of a run that never started was cut short between the job and its run",
    12283: "RunDoneOnce: two sweeps met over a run: one claimed it, the other took away the note that led to the claim",
    14974: "RetryLive: a job that was not in its run's count passed for none; GitHub refused, and that was final",
    26958: "SpotIndependent: the checker held against a handler that a process with a wrong clock opened its node",
    25122: "SpotIndependent: a handler noted the time of its own clock, which was behind; others opened the node again",
    23287: "AzKept: the checker took what was leaving for in service, since the list of pods was an old one",
    21041: "PlanFirst: the checker held against a process that an eviction reached Kubernetes late, past an opening",
    20405: "BackoffKept: the checker took a back-off that ran out while its writer slept for none at all",
    10571: "SpotIndependent: the checker took the handler of a hint for that of an interruption, which was over",
    10310: "NoStuckNotice: EC2 forgot the machine before its replacement came, and its notice stayed open for ever",
    303: "SafeTerminate: a machine was terminated with three pods on it",
    4: "RetryOnce: somebody had run it again by hand, and that attempt, which spot did not fail, was run again",
    202: "CountersExact: who found a job of a run that never started was cut short, and the job stayed open for ever",
    348: "RetryLive: a sweep came between the note of an interruption and its event, and dropped the note",
}


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_once_broke_an_invariant_breaks_none(seed: int) -> None:
    outcome = answer(Question(seed))
    assert [str(violation) for violation, _ in outcome.violations] == [], FOUND[seed]
