"""The names of actions. Ours tell when they were begun, and can be told from those of an older autoscaler."""

import re
from typing import Final

from holdfast.kernel.ids import ActionId
from holdfast.kernel.instants import Instant

_OUR_ACTION: Final = re.compile(r"([0-9]{1,12})-([1-9][0-9]{0,17})-.+", re.ASCII | re.DOTALL)


def action_name(now: Instant, fence: int, owner: str) -> ActionId:
    """The name of an action of ours: it bears its time, and the fence under which it was begun."""
    return ActionId(f"{now.epoch_seconds}-{fence}-{owner}")


def action_begun(action: str, fence: int) -> Instant | None:
    """When this action of ours was begun; None for another autoscaler's. Theirs bear no fence that was ever ours."""
    found = _OUR_ACTION.fullmatch(action)
    return Instant.from_epoch_seconds(int(found[1])) if found and int(found[2]) <= fence else None


def action_owner(action: str) -> str:
    """Who began this action of ours; nothing, if it is another autoscaler's."""
    return action.split("-", 2)[2] if _OUR_ACTION.fullmatch(action) else ""
