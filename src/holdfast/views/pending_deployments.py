"""What the jobs of a run wait for, and whether a deployment is still pending: from the store, or from GitHub."""

from collections.abc import Sequence
from typing import Protocol

from holdfast.jobs.model.deployment import PENDING
from holdfast.jobs.model.facts import Status
from holdfast.jobs.model.keys import DeploymentKey, RunKey
from holdfast.jobs.read.run_jobs import registered_run
from holdfast.jobs.read.run_views import DeploymentView
from holdfast.jobs.sweep.live_run import Gates
from holdfast.kernel.ids import DeploymentId, InstallationId, RunId
from holdfast.ports.store import Item, Store
from holdfast.ports.store.tables import DEPLOYMENTS
from holdfast.views.job_types import WaitingEnvironment


class Fresh(Protocol):
    """GitHub, for runs that the store does not know, or not well enough."""

    def __call__(self, key: RunKey, run: Item) -> Item: ...

    def pending(self, key: RunKey, run: Item) -> Gates | None: ...


def pending_environments(
    store: Store, github: Fresh | None, key: RunKey, run: Item, jobs: Sequence[Item]
) -> list[WaitingEnvironment]:
    """The environments that these jobs wait for. GitHub is called only if a job's deployment is unknown."""
    waiting = [job for job in jobs if job.get("status") == Status.WAITING]
    if not waiting or run.get("status") == Status.COMPLETED:
        return []
    ids = {int(job["deployment_id"]) for job in waiting if "deployment_id" in job}
    keys = [DeploymentKey(key.installation_id, DeploymentId(number)).item for number in sorted(ids)]
    known = [each for each in (store.batch_get(DEPLOYMENTS, keys) if keys else ()) if each is not None]
    named = sorted({str(each.get("environment", "")) for each in known if each.get("status", PENDING) == PENDING})
    pending = [WaitingEnvironment(environment=name, source="store") for name in named]
    if github is not None and any("deployment_id" not in job for job in waiting):
        gates = github.pending(key, run) or ()
        pending += [
            WaitingEnvironment(**{**gate, "source": "github"}) for gate in gates if gate["environment"] not in named
        ]
    return pending


def is_pending_at_github(
    store: Store, github: Fresh | None, installation: InstallationId, view: DeploymentView
) -> bool | None:
    """Whether GitHub still waits for it. It is only asked about deployments that the store knows as pending."""
    if github is None or view.status != PENDING or view.run_id is None:
        return None
    key = RunKey(installation, RunId(int(view.run_id)), int(view.run_attempt or 1))
    run = registered_run(store, key)
    if run is None or run.get("status") == Status.COMPLETED:
        return None
    gates = github.pending(key, run)
    return None if gates is None else any(gate["environment"] == view.environment for gate in gates)
