"""The runbook and the messages that must be in it."""

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Final

import holdfast
from holdfast.kernel.errors import NeedsOperator

ROOT: Final = Path(__file__).parents[2]
RUNBOOK: Final = ROOT / "docs" / "RUNBOOK.md"


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """Valid anchors after ``#``: the headings, as GitHub spells them."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def needs_operator() -> set[type[NeedsOperator]]:
    """All of them, whichever tests ran before: every module is imported first."""
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        importlib.import_module(module.name)
    found, unseen = set(), [NeedsOperator]
    while unseen:
        kind = unseen.pop()
        found.add(kind)
        unseen += [below for below in kind.__subclasses__() if below.__module__.startswith("holdfast.")]
    return found
