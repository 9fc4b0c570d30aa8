"""The guide to runners: its example is the tested file, and its table has every part of a label."""

import re
from pathlib import Path
from typing import Final

from holdfast.runners.compound_label import MachineRequest
from tests.support.runner_offers import EXAMPLE, example_offer

GUIDE: Final = (Path(__file__).parents[3] / "docs" / "runners.md").read_text(encoding="utf-8")


def test_the_example_is_the_file_whose_output_the_guide_shows() -> None:
    assert f"```toml\n{EXAMPLE.read_text(encoding='utf-8')}```" in GUIDE
    assert [profile.name for profile in example_offer().settings.offered] == ["small", "deploy", ""]


def test_the_guide_has_every_part_of_a_compound_label() -> None:
    parts = GUIDE.partition("| part | asks for |")[2].partition("\n\n")[0]
    named = re.findall(r"^\| `(\w+)=", parts, re.MULTILINE)
    assert named == ["holdfast", *(name for name in MachineRequest.__struct_fields__ if name != "token")]
