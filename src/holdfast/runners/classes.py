"""From a job's labels to a class: jobs with the same label set, and the machine that all of them get.

A job is Holdfast's to serve if one of its labels is the name of a profile, or begins with ``holdfast=``. Then every
label must be understood: a runner that lacks one of them would never get the job.

    labels ──► not ours         GitHub's own runners, or somebody else's
           ├─► unservable       why, and the nearest labels that would do; nothing is ever launched for it
           └─► served           profile, machine, and the key that limits count by
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.kernel.ids import InstallationId
from holdfast.kernel.label_sets import is_github_hosted, label_set, label_set_hash
from holdfast.kernel.settings.runner_kinds import ARCHITECTURES
from holdfast.kernel.settings.runners import SYSTEM_LABELS, Profile
from holdfast.kernel.settings.tables import nearest
from holdfast.kernel.text import cut, some
from holdfast.runners.compound_label import MachineRequest, is_compound, parsed
from holdfast.runners.machine_spec import MachineSpec, machine_spec, nearest_request
from holdfast.runners.offer import Offer

CLASSES_PER_REPOSITORY: Final = 64
_REASONS_SHOWN: Final = 3


class Served(Struct, frozen=True):
    """`limits_key` names the label set without its token: limits, fairness and back-off count by it."""

    labels: tuple[str, ...]
    profile: Profile
    spec: MachineSpec
    limits_key: str


class Unservable(Struct, frozen=True):
    """`nearest` are labels that would do; empty if there are none."""

    reason: str
    nearest: tuple[str, ...] = ()


class NotOurs(Struct, frozen=True):
    reason: str


Verdict = Served | Unservable | NotOurs


class RunnerClass(Struct, frozen=True):
    """Installation, scope, runner group and label set: jobs that any runner of the class may get."""

    installation_id: InstallationId
    scope: str
    group: str | None
    labels: tuple[str, ...]
    spec: MachineSpec

    @property
    def labels_hash(self) -> str:
        return label_set_hash(self.labels)


def runner_class(installation_id: InstallationId, repository: str, served: Served) -> RunnerClass:
    """The class of a served job of that repository."""
    owner = repository.partition("/")[0]
    scope = repository if served.profile.runner_scope == "repository" else owner
    return RunnerClass(installation_id, scope.lower(), served.profile.group, served.labels, served.spec)


def verdict(
    offer: Offer, labels: Iterable[str], repository: str | None = None, known_keys: Collection[str] = ()
) -> Verdict:
    """What becomes of a job with these labels. `known_keys` are the limits' keys that its repository already has.

    Without a repository, who may use a profile is not checked.
    """
    normal = label_set(labels)
    compounds = [label for label in normal if is_compound(label)]
    names = {profile.name for profile in offer.settings.profiles}
    named = [label for label in normal if label in names]
    if not compounds and not named:
        return _not_ours(offer, normal)
    request, problems = parsed(compounds[0]) if compounds else (MachineRequest(), [])
    if len(compounds) > 1:
        problems.append(f"there are {len(compounds)} labels that begin with holdfast; expected one")
    request, more = _with_plain_labels(offer, request, named, [each for each in normal if not is_compound(each)])
    problems += more
    profile, more = _profile_of(offer, request)
    problems += more
    if profile is None:
        return Unservable(_words(problems), _nearest_profile(offer, request.profile, repository))
    if not is_allowed(profile, repository):
        allowed = ", ".join(profile.repositories)
        problems.append(f"{name_of(profile)} is only for {allowed}, and not for {cut(repository or '')}")
        return Unservable(_words(problems), _nearest_profile(offer, request.profile, repository))
    spec = machine_spec(offer, profile, request)
    if isinstance(spec, list):
        problems += spec
    if problems or isinstance(spec, list):
        return Unservable(_words(problems), _nearest_labels(offer, profile, request, normal))
    key = label_set_hash(_without_token(normal, request))
    if key not in known_keys and len(known_keys) >= CLASSES_PER_REPOSITORY:
        reason = f"its repository already has {len(known_keys)} different label sets, the most that are served"
        return Unservable(f"{reason}; use one of them (the token after holdfast= does not count)")
    return Served(normal, profile, spec, key)


def is_allowed(profile: Profile, repository: str | None) -> bool:
    if repository is None or not profile.repositories:
        return True
    name = repository.lower()
    return name in profile.repositories or f"{name.partition('/')[0]}/*" in profile.repositories


def _with_plain_labels(
    offer: Offer, request: MachineRequest, named: Sequence[str], plain: Sequence[str]
) -> tuple[MachineRequest, list[str]]:
    """The request with what the labels beside the compound one say: a profile, and the architecture."""
    problems = []
    profiles = list(dict.fromkeys([*([request.profile] if request.profile else []), *named]))
    if len(profiles) > 1:
        problems.append(f"it names several profiles: {', '.join(map(cut, profiles[:_REASONS_SHOWN]))}")
    architectures = {ARCHITECTURES[label] for label in plain if label in ("x64", "arm64")}
    if request.arch is not None:
        architectures.add(request.arch)
    if len(architectures) > 1:
        problems.append("it asks for both x64 and arm64")
    known = dict.fromkeys([*SYSTEM_LABELS, *(profile.name for profile in offer.settings.profiles)])
    extra = [label for label in plain if label not in known]
    for label in extra[:_REASONS_SHOWN]:
        close = nearest(label, [*known], cutoff=0.8)
        hint = f" (did you mean {close}?)" if close else ""
        problems.append(f"no runner of Holdfast has the label {cut(label)!r}{hint}")
    if len(extra) > _REASONS_SHOWN:
        problems.append(f"nor {some(len(extra) - _REASONS_SHOWN, 'further label')}")
    arch = min(architectures) if architectures else None
    return replace(request, profile=profiles[0] if profiles else None, arch=arch), problems


def _profile_of(offer: Offer, request: MachineRequest) -> tuple[Profile | None, list[str]]:
    if request.profile is None:
        missing = "labels without a profile are not offered: there is no [runners.bounds]"
        return offer.settings.bounds, [] if offer.settings.bounds else [missing]
    found = offer.profile(request.profile)
    if found is not None:
        return found, []
    close = nearest(request.profile, [profile.name for profile in offer.settings.profiles])
    return None, [f"profile={cut(request.profile)} does not exist" + (f" (did you mean {close}?)" if close else "")]


def _not_ours(offer: Offer, labels: Sequence[str]) -> NotOurs:
    if not labels:
        return NotOurs("it has no labels")
    if any(map(is_github_hosted, labels)):
        return NotOurs("its labels are those of GitHub's own runners")
    names = [profile.name for profile in offer.settings.profiles]
    close = next(filter(None, (nearest(label, names, cutoff=0.8) for label in labels[:_REASONS_SHOWN])), None)
    hint = f" (did you mean {close}?)" if close else ""
    return NotOurs(f"none of its labels is a profile of Holdfast or begins with holdfast={hint}")


def _nearest_labels(offer: Offer, profile: Profile, request: MachineRequest, labels: Sequence[str]) -> tuple[str, ...]:
    """The labels with which the same job would be served: the understood ones, and the nearest request."""
    near = nearest_request(offer, profile, request)
    if near is None:
        return ()
    kept = [label for label in labels if label in ("self-hosted", "linux")]
    asks_nothing = replace(near, profile=None, arch=None) == MachineRequest() and profile.name
    if asks_nothing:
        return label_set([*kept, profile.name, *([near.arch] if near.arch else [])])
    return label_set([*kept, near.label()])


def _nearest_profile(offer: Offer, wanted: str | None, repository: str | None) -> tuple[str, ...]:
    """The profile with the most similar name that the repository may use."""
    allowed = [profile.name for profile in offer.settings.profiles if is_allowed(profile, repository)]
    close = nearest(wanted or "", allowed, cutoff=0)
    return () if close is None else (close,)


def _without_token(labels: Sequence[str], request: MachineRequest) -> list[str]:
    """The label set with the compound label in its plain form. Spellings of one request are one key."""
    plain = [label for label in labels if not is_compound(label)]
    if len(plain) == len(labels):
        return plain
    return [*plain, request.without_token().label()]


def name_of(profile: Profile) -> str:
    return f"profile {profile.name}" if profile.name else "[runners.bounds]"


def _words(problems: Sequence[str]) -> str:
    shown = "; ".join(problems[:_REASONS_SHOWN])
    return shown if len(problems) <= _REASONS_SHOWN else f"{shown}; and {len(problems) - _REASONS_SHOWN} more"
