"""What is happening now, in words, and what somebody should look at. Pure: made of the data that the pages show."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from holdfast.entrypoints.pulse import allowed_seconds
from holdfast.kernel.text import age, some

Data = Mapping[str, Any]

# The rules that speak for going down begin with this one; those before it speak for going up.
_FIRST_DOWN: Final = "cpu_low"
_LAST_DOWN: Final = "no_action_under_way"
# Each rule as it holds, and as it does not.
RULES: Final = {
    "cpu_high": ("CPU is high", "CPU is not high"),
    "pods_waiting": ("pods wait for a place", "no pod waits"),
    "waiting_long_enough": ("they have waited long enough", "they have not waited long enough"),
    "cooldown_up_over": ("the cooldown is over", "the cooldown is not over"),
    "below_maximum": ("there are fewer workers than the maximum", "there are as many workers as may be"),
    "no_action_under_way": ("no other action is under way", "an action is under way"),
    "not_backing_off": ("no failure to back off from", "it backs off after a failure"),
    "cpu_low": ("CPU is low", "CPU is not low"),
    "nothing_waiting": ("no pod waits", "pods wait for a place"),
    "idle_long_enough": ("it has idled long enough", "it has not idled long enough"),
    "cooldown_down_over": ("the cooldown is over", "the cooldown is not over"),
    "above_minimum": ("there are more workers than the minimum", "there are as few workers as may be"),
    "nodes_known": ("the nodes can be seen", "the nodes cannot be seen"),
    "not_ready_replaced": ("no node stays NotReady", "a node stays NotReady"),
    "not_paused": ("it is not paused", "it is paused"),
    "somewhere_to_launch": ("a pool has capacity", "no pool has capacity"),
    "a_worker_may_leave": ("a worker may leave", "no worker may leave"),
}
# What cannot hold while the other does not: one reason is enough.
_FOLLOWS: Final = {"waiting_long_enough": ("pods_waiting",), "idle_long_enough": ("cpu_low", "nothing_waiting")}
_PRESSURE: Final = ("cpu_high", "pods_waiting", "waiting_long_enough")


# By the kind of the notice.
_LEAVING: Final = {
    "interruption": ("EC2 takes", "spot machine", " back"),
    "rebalance": ("Replacing", "spot machine", " at risk of being taken"),
    "not-ready": ("Replacing", "worker", " for being NotReady"),
}


@dataclass(frozen=True, slots=True)
class Alert:
    """Something to look at. `is_urgent`: now, rather than some time today. `link` leads to where."""

    what: str
    text: str
    act: str
    link: str
    is_urgent: bool = False

    def shown(self) -> dict[str, Any]:
        return asdict(self)


def rule_groups(rules: Sequence[Data], *, one_suffices: bool = False) -> list[dict[str, Any]]:
    """The rules of a tick by what they are for. All of a group must hold; `against` says what does not.

    `one_suffices`: high CPU alone, or pods that wait alone, are enough to add workers (SCALE_UP_RULE).
    """
    up: list[Data] = []
    down: list[Data] = []
    others: list[Data] = []
    current = up
    for rule in rules:
        if rule["name"] == _FIRST_DOWN:
            current = down
        holds, _ = _in_words(rule)
        current.append({**rule, "words": holds})
        if current is down and rule["name"] == _LAST_DOWN:
            current = others
    named = (("To add workers", up), ("To take one away", down), ("Beside that", others))
    return [
        {"title": title, "rules": group, "against": _against(group, one_suffices=one_suffices)}
        for title, group in named
        if group
    ]


def _against(rules: Sequence[Data], *, one_suffices: bool) -> list[str]:
    missing = {rule["name"] for rule in rules if rule["verdict"] != "yes"}
    if one_suffices and ("cpu_high" not in missing or not missing & {"pods_waiting", "waiting_long_enough"}):
        missing -= set(_PRESSURE)
    return [
        _in_words(rule)[1] if rule["verdict"] == "no" else f"it is not known whether {_in_words(rule)[0]}"
        for rule in rules
        if rule["name"] in missing and not missing & set(_FOLLOWS.get(rule["name"], ()))
    ]


def _in_words(rule: Data) -> tuple[str, str]:
    name = str(rule["name"]).replace("_", " ")
    return RULES.get(rule["name"], (name, f"not: {name}"))


def why_nothing(groups: Sequence[Data]) -> str:
    """Why a tick did nothing, in a line. While pods wait, nobody asks why none is taken away."""
    against = {group["title"]: group["against"] for group in groups}
    up, down = against.get("To add workers", []), against.get("To take one away", [])
    acting = RULES["no_action_under_way"][1]
    if acting in up or acting in down:
        return acting
    if RULES["nothing_waiting"][1] in down:
        down = []
    parts = (("not up", up), ("not down", down), ("", against.get("Beside that", [])))
    return "; ".join(f"{what}: {', '.join(why)}".removeprefix(": ") for what, why in parts if why)


def headline(cluster: Data, jobs: Data) -> list[str]:
    """Two or three sentences: what is there, what is being done, what runs."""
    return [sentence for sentence in (_there(cluster), _doing(cluster), _running(jobs)) if sentence]


def _there(cluster: Data) -> str:
    workers, pods, pending = cluster["workers"], cluster["pods"], cluster["pending"]
    if cluster["last_tick_seconds"] is None and not workers:
        return "Nothing is known of the cluster yet: no tick has looked at it."
    carry = f" with {some(pods, 'pod')}" if pods is not None else ""
    wait = "" if pending is None else f"; {_waits(pending, 'pod')} for a place" if pending else "; nothing waits"
    return f"{some(workers, 'worker')}{carry}{wait}."


def _doing(cluster: Data) -> str:
    action = cluster["action"]
    found = []
    if action:
        is_up = action["kind"] == "scale-up"
        number = action["requested"] if is_up else len(action["targets"])
        verb, away = ("Adding", "") if is_up else ("Taking", " away")
        phase = f"{action['phase'].lower()} for {age(int(action['seconds']))}"
        found.append(f"{verb} {some(number, 'worker')}{away}: {phase}.")
    found += _leaving(cluster)
    if cluster["paused"]:
        found.append("Paused: nothing new is begun.")
    return " ".join(found)


def _leaving(cluster: Data) -> Iterator[str]:
    """Who leaves beside an action, and why."""
    kinds = [node["notice"]["kind"] for node in cluster["nodes"] if node["status"] == "leaving"]
    for kind, (before, noun, after) in _LEAVING.items():
        if number := kinds.count(kind):
            yield f"{before} {some(number, noun)}{after}."


def _running(jobs: Data) -> str:
    if not jobs["installations"]:
        return ""
    counts = jobs["counts"]
    waiting, number = _many(counts["waiting"]), counts["waiting"]["jobs"]
    approval = f", {waiting} {'waits' if number == 1 else 'wait'} for approval" if number else ""
    running, queue = counts["in_progress"], _many(counts["queued"], counts["scheduled"])
    jobs_running = f"{_many(running)} {'job' if running['jobs'] == 1 else 'jobs'}"
    return f"{jobs_running} running, {queue} queued{approval}."


def _many(*counts: Data) -> str:
    """Counted up to a bound; where there are more, it says so."""
    return f"{sum(count['jobs'] for count in counts)}{'+' if any(count['more'] for count in counts) else ''}"


def alerts(cluster: Data, jobs: Data, tick_seconds: float) -> list[dict[str, Any]]:
    found = [*_ticking(cluster, tick_seconds), *_capacity(cluster), *_nodes(cluster), *_jobs(jobs)]
    return [alert.shown() for alert in sorted(found, key=lambda alert: not alert.is_urgent)]


def _ticking(cluster: Data, tick_seconds: float) -> Iterator[Alert]:
    failure, seconds = cluster["failure"], cluster["last_tick_seconds"]
    if failure:
        yield Alert(
            "tick_failed",
            f"The last tick came to nothing: {failure['why']}",
            "the log has more",
            "/cluster/decisions",
            True,
        )
    elif seconds is None:
        yield Alert(
            "no_tick",
            "No tick has been recorded in the last day.",
            "start one with: holdfast run",
            "/cluster/decisions",
            True,
        )
    elif seconds > allowed_seconds(tick_seconds):
        yield Alert(
            "no_tick",
            f"The last tick was {age(int(seconds))} ago.",
            "is holdfast run, or the Lambda function, alive?",
            "/cluster/decisions",
            True,
        )
    yield from _unknown(cluster["rules"])
    if cluster["paused"]:
        who, why = cluster["paused"]["by"], cluster["paused"]["reason"]
        yield Alert(
            "paused", f"Paused by {who}" + (f": {why}" if why else "") + ".", "resume it when done", "/cluster#pause"
        )


def _unknown(rules: Sequence[Data]) -> Iterator[Alert]:
    """One for each reason, whatever number of rules has it."""
    found: dict[str, list[str]] = {}
    for rule in rules:
        if rule["verdict"] == "unknown":
            found.setdefault(rule["value"], []).append(_in_words(rule)[0])
    for why, words in found.items():
        what = " or ".join(dict.fromkeys(words))
        act = "nothing is scaled on a guess; the rules say what is missing"
        yield Alert("unknown", f"It is not known whether {what}: {why}.", act, "/cluster#why")


def _capacity(cluster: Data) -> Iterator[Alert]:
    failing = [pool for pool in cluster["capacity"] if pool["is_failing"]]
    if failing:
        names = ", ".join(f"{pool['type']} {pool['market']} in {pool['zone']}" for pool in failing[:3])
        more = f" and {len(failing) - 3} more" if len(failing) > 3 else ""
        yield Alert("no_capacity", f"EC2 has no {names}{more}.", "other pools are used meanwhile", "/cluster#capacity")
    if cluster["up_failures"]:
        yield Alert(
            "up_failed",
            "The last scale-up failed."
            if cluster["up_failures"] == 1
            else f"The last {cluster['up_failures']} scale-ups failed.",
            "the decisions say why",
            "/cluster/decisions?acted=yes",
            True,
        )


def _nodes(cluster: Data) -> Iterator[Alert]:
    lost = [node["id"] for node in cluster["nodes"] if node["status"] == "not ready"]
    if lost:
        yield Alert(
            "not_ready",
            f"Not ready: {', '.join(lost[:3])}.",
            "replaced by itself after NOT_READY_SEC",
            "/cluster#nodes",
            True,
        )
    for held in cluster["undrainable"]:
        if held["is_failing"]:
            yield Alert(
                "undrainable",
                f"{held['id']} could not be drained.",
                "which pod stays? see the decisions",
                "/cluster/decisions?acted=yes",
            )


def _jobs(jobs: Data) -> Iterator[Alert]:
    stuck = jobs["stuck"]
    if stuck["jobs"]:
        more = " or more" if stuck["more"] else ""
        yield Alert(
            "stuck_jobs",
            f"{some(stuck['jobs'], 'job')}{more} stuck.",
            "the list says where, and since when",
            "/jobs?tab=stuck",
            True,
        )
    if jobs["problem"]:
        yield Alert(
            "jobs_unknown", f"The jobs cannot be shown: {jobs['problem']}", "is the store there?", "/system", True
        )


def _waits(number: int, word: str) -> str:
    return f"{some(number, word)} {'waits' if number == 1 else 'wait'}"
