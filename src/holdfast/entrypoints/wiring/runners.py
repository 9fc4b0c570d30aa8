"""Builds what the runner fleet offers from `[runners]` in holdfast.toml and the table of instance types."""

from holdfast.fleet.instance_types import instance_types
from holdfast.kernel.errors import BadSetting
from holdfast.kernel.settings import Settings
from holdfast.runners.offer import Offer


def runner_offer(settings: Settings) -> Offer:
    """The offer; BadSetting with a line for each profile that no machine fits."""
    offer = Offer(settings.runners, instance_types())
    problems = list(offer.type_problems())
    if problems:
        raise BadSetting("\n".join(problems))
    return offer
