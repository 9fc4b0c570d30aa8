"""The labels of a job in the one form in which they are compared, stored and hashed.

GitHub ignores the case and the order of labels. Runners and jobs both use this form, so that a job and the machine
launched for it agree on their label set without reading each other's items.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Final

_HASH_DIGITS: Final = 32
_GITHUB_HOSTED: Final = re.compile(
    r"(ubuntu|windows|macos)-(latest|slim|[0-9]{1,4}(\.[0-9]{1,2})?)(-(arm|intel|large|xlarge|vs[0-9]{4}))?"
)


def label_set(labels: Iterable[str]) -> tuple[str, ...]:
    """The labels in lower case, sorted, each once."""
    return tuple(sorted({label.lower() for label in labels}))


def label_set_hash(labels: Iterable[str]) -> str:
    """A name for the label set, short enough for a key: two sets have the same one only if they are equal."""
    # As JSON: a separator could be part of a label, and a lone surrogate cannot be encoded otherwise.
    text = json.dumps(label_set(labels))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:_HASH_DIGITS]


def is_github_hosted(label: str) -> bool:
    """Whether it is a label of GitHub's own runners, such as ``ubuntu-latest`` or ``macos-15-xlarge``."""
    return _GITHUB_HOSTED.fullmatch(label.lower()) is not None
