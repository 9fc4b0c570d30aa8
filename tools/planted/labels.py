"""Mistakes in how labels become machines.

That code has no effects, so tests find them and not the simulator's checkers: `where` is the test.
"""

from typing import Final

from tools.planted.mutant import Mutant

_CLASSES: Final = "tests/unit/runners/test_classes.py"
_WITHIN: Final = f"{_CLASSES}::test_no_label_reaches_beyond_what_the_operator_allows"

LABELS: Final = (
    Mutant(
        "only the beginning of what is asked is compared, and only with the upper bound",
        "holdfast.runners.machine_spec",
        "        if asked is not None and bound is not None and asked not in bound:\n",
        "        if asked is not None and bound is not None and asked.least > bound.most:\n",
        where=f"{_CLASSES}::test_what_cannot_be_served_has_a_reason_and_the_nearest_that_would_do",
        says="cpu=8-64 is accepted where 16 is the most, and disk=1 where 40 is the least",
    ),
    Mutant(
        "every image may be asked for by its name",
        "holdfast.runners.machine_spec",
        "    for image in offer.images_of(profile):\n",
        "    for image in offer.settings.images:\n",
        where=_WITHIN,
    ),
    Mutant(
        "a family is a prefix",
        "holdfast.runners.offer",
        "    return bool(_GENERATION.fullmatch(pattern)) and family.startswith(pattern) and not family[len(pattern)].isdigit()\n",
        "    return family.startswith(pattern)\n",
        where=f"{_CLASSES}::test_a_family_is_one_family_or_a_whole_generation",
        says="family=m means every family that begins with m",
    ),
    Mutant(
        "a label may refuse spot where the operator has spot only",
        "holdfast.runners.machine_spec",
        '_ONLY_SPOT: Final[Mapping[SpotRule, bool]] = {"never": False, "only": True}\n',
        '_ONLY_SPOT: Final[Mapping[SpotRule, bool]] = {"never": False}\n',
        where=f"{_CLASSES}::test_spot_is_not_a_choice_where_the_profile_has_decided",
    ),
    Mutant(
        "another owner's repository may use a profile for owner/*",
        "holdfast.runners.classes",
        "    return name in profile.repositories or f\"{name.partition('/')[0]}/*\" in profile.repositories\n",
        '    return name in profile.repositories or any(each.endswith("/*") for each in profile.repositories)\n',
        where=_WITHIN,
    ),
    Mutant(
        "labels beside ours are ignored",
        "holdfast.runners.classes",
        "    extra = [label for label in plain if label not in known]\n",
        "    extra: list[str] = []\n",
        where=f"{_CLASSES}::test_a_label_that_no_runner_would_have_is_never_served",
        says="the job gets a machine without what it asked for, and its runner never gets the job",
    ),
    Mutant(
        "limits are counted for each token",
        "holdfast.runners.classes",
        "    return [*plain, request.without_token().label()]\n",
        "    return [*plain, request.label()]\n",
        where=f"{_CLASSES}::test_a_token_chooses_nothing_and_is_no_part_of_the_limits_key",
        says="each run has limits of its own",
    ),
    Mutant(
        "labels are joined by commas before they are hashed",
        "holdfast.kernel.label_sets",
        "    text = json.dumps(label_set(labels))\n",
        '    text = ascii(",".join(label_set(labels)))\n',
        where="tests/unit/kernel/test_label_sets.py::test_no_separator_makes_two_sets_one",
        says="two label sets have one hash",
    ),
    Mutant(
        "a suggestion keeps the range that was out of bounds",
        "holdfast.runners.machine_spec",
        "    return asked if bound is None else Span(max(asked.least, bound.least), min(asked.most, bound.most))\n",
        "    return asked\n",
        where=f"{_CLASSES}::test_the_nearest_labels_would_do",
    ),
)
