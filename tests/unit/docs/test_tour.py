"""The tour names things of the simulated world that are there."""

import re
from pathlib import Path
from typing import Final

from tests.support.persistent_worlds import begin

ROOT: Final = Path(__file__).parents[3]


def test_the_job_of_the_tour_is_the_first_of_the_world() -> None:
    day = begin()
    day.world.timeline.sleep(120)
    named = re.search(r"jobs explain (\d+) +# the first job", (ROOT / "docs/tour.md").read_text())
    assert named
    assert int(named[1]) == min(day.organisation.github.jobs)
