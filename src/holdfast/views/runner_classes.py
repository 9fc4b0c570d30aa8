"""What profiles and labels become, as the command line and the job's explanation show it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, assert_never

from msgspec import UNSET, UnsetType, structs

from holdfast.jobs.read.explain import LabelsAnswer
from holdfast.jobs.read.item_views import JobView
from holdfast.kernel.json_types import Count, Shape
from holdfast.kernel.label_sets import label_set, label_set_hash
from holdfast.kernel.settings.runner_kinds import Architecture, Scope
from holdfast.kernel.settings.runners import Profile
from holdfast.runners.classes import NotOurs, Served, Unservable, verdict
from holdfast.runners.compound_label import MachineRequest
from holdfast.runners.explain import MARKETS, Market, verdict_words
from holdfast.runners.machine_spec import MachineSpec, machine_spec
from holdfast.runners.offer import MIB_PER_GIB, Offer


class MachineView(Shape, frozen=True, kw_only=True):
    """The machine of a class. Types are in the order in which they are tried."""

    types: list[str]
    vcpus: str
    memory_gib: str
    architecture: Architecture
    market: Market
    image: str
    launch_template: str
    disk_gib: Count


class ClassView(Shape, frozen=True, kw_only=True):
    """What a profile offers. Its name is the label that selects it; None: the bounds for labels without a profile.

    `machine` is what a job gets whose labels ask for nothing more.
    """

    profile: str | None
    machine: MachineView
    maximum: Count
    repositories: list[str]
    scope: Scope
    group: str | None
    pool: str | None


class TriedLabels(Shape, frozen=True, kw_only=True):
    """What becomes of a label set. `labels_hash` names it; `limits_hash` names it without its token."""

    labels: list[str]
    labels_hash: str
    repository: str | None
    verdict: Literal["served", "unservable", "not_ours"]
    reason: str | None
    nearest: list[str]
    limits_hash: str | None
    served_by: ClassView | None


class WaitingLabels(TriedLabels, frozen=True, kw_only=True):
    """A label set of a repository, and how many of its jobs wait with it."""

    jobs: Count


class ClassList(Shape, frozen=True, kw_only=True):
    """`waiting` is there if it was asked for."""

    items: list[ClassView]
    cursor: None = None
    waiting: list[WaitingLabels] | UnsetType = UNSET


class RefreshedTypes(Shape, frozen=True, kw_only=True):
    """A new table of instance types: what it has that the shipped one has not, and the other way round."""

    file: str
    types: Count
    added: list[str]
    gone: list[str]
    done: bool


def class_list(offer: Offer, waiting: Iterable[JobView] | None = None) -> ClassList:
    """What each profile offers, and what the labels of jobs that wait become."""
    plain = ((profile, machine_spec(offer, profile, MachineRequest())) for profile in offer.settings.offered)
    items = [_class_view(offer, profile, spec) for profile, spec in plain if isinstance(spec, MachineSpec)]
    return ClassList(items=items, waiting=UNSET if waiting is None else _waiting_labels(offer, waiting))


def _waiting_labels(offer: Offer, jobs: Iterable[JobView]) -> list[WaitingLabels]:
    """In the order of the jobs, which is by age."""
    counts = Counter((label_set(map(str, job.labels or ())), job.repo_full_name) for job in jobs)
    return [
        WaitingLabels(**structs.asdict(tried_labels(offer, labels, repository)), jobs=count)
        for (labels, repository), count in counts.items()
    ]


def tried_labels(offer: Offer, labels: Iterable[str], repository: str | None) -> TriedLabels:
    normal = label_set(labels)
    found = verdict(offer, normal, repository)
    served = found if isinstance(found, Served) else None
    match found:
        case Served():
            word: Literal["served", "unservable", "not_ours"] = "served"
        case Unservable():
            word = "unservable"
        case NotOurs():
            word = "not_ours"
        case _:
            assert_never(found)
    return TriedLabels(
        labels=list(normal),
        labels_hash=label_set_hash(normal),
        repository=repository,
        verdict=word,
        reason=None if isinstance(found, Served) else found.reason,
        nearest=list(found.nearest) if isinstance(found, Unservable) else [],
        limits_hash=served.limits_key if served else None,
        served_by=_class_view(offer, served.profile, served.spec) if served else None,
    )


def labels_answer(offer: Offer, labels: Sequence[str], repository: str | None) -> LabelsAnswer | None:
    """For a queued job. None if nothing is offered: then Holdfast has no say in who serves it."""
    if not offer.settings.offered:
        return None
    found = verdict(offer, labels, repository)
    words = verdict_words(found)
    because = f"{words[0].upper()}{words[1:]}."
    match found:
        case Served():
            return LabelsAnswer(because, "the runner fleet schedules a runner")
        case Unservable():
            return LabelsAnswer(because, "change its labels and run it again; GitHub cancels it after 24 hours")
        case NotOurs():
            return LabelsAnswer(because, "a runner of GitHub or of another fleet starts it")
        case _:
            assert_never(found)


def _class_view(offer: Offer, profile: Profile, spec: MachineSpec) -> ClassView:
    types = [offer.types[name] for name in spec.types]
    machine = MachineView(
        types=list(spec.types),
        vcpus=_range_words([each.vcpus for each in types]),
        memory_gib=_range_words([each.memory_mib / MIB_PER_GIB for each in types]),
        architecture=spec.image.arch,
        market=MARKETS[spec.spot],
        image=spec.image.name,
        launch_template=spec.image.template,
        disk_gib=spec.disk_gib,
    )
    return ClassView(
        profile=profile.name or None,
        machine=machine,
        maximum=profile.maximum,
        repositories=list(profile.repositories),
        scope=profile.runner_scope,
        group=profile.group,
        pool=profile.pool,
    )


def _range_words(numbers: Sequence[float]) -> str:
    """``4``, or ``2-16``."""
    least, most = f"{min(numbers):g}", f"{max(numbers):g}"
    return least if least == most else f"{least}-{most}"
