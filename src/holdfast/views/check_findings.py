"""What a check of `holdfast doctor` found, for the console."""

from holdfast.kernel.json_types import Shape


class CheckFinding(Shape, frozen=True):
    """What was checked, how it went (ok, warning, failed, not asked), what was found, and how to fix it."""

    check: str
    outcome: str
    seen: str
    fix: str
