"""Action ids. Ours contain their start time, and differ from those of an older autoscaler."""

import re
from typing import Final

from holdfast.kernel.ids import ActionId
from holdfast.kernel.instants import Instant

_OUR_ACTION: Final = re.compile(r"([0-9]{1,12})-([1-9][0-9]{0,17})-.+", re.ASCII | re.DOTALL)


def new_action_id(now: Instant, fence: int, owner: str) -> ActionId:
    """A new id, made of the start time, the fence and the owner."""
    return ActionId(f"{now.epoch_seconds}-{fence}-{owner}")


def action_begun(action: str, fence: int) -> Instant | None:
    """When our action began; None for another autoscaler's, whose ids contain no fence that we have reached."""
    found = _OUR_ACTION.fullmatch(action)
    return Instant.from_epoch_seconds(int(found[1])) if found and int(found[2]) <= fence else None


def action_owner(action: str) -> str:
    """The process that began our action; empty for another autoscaler's."""
    return action.split("-", 2)[2] if _OUR_ACTION.fullmatch(action) else ""
