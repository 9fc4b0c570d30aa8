"""Ids. Each is a NewType, so that mypy does not accept a job id for a run id."""

import random
import secrets
from typing import NewType

from holdfast.kernel.errors import BadRequest

ClusterId = NewType("ClusterId", str)
InstanceId = NewType("InstanceId", str)
ActionId = NewType("ActionId", str)
InstallationId = NewType("InstallationId", int)
JobId = NewType("JobId", int)
RunId = NewType("RunId", int)
DeploymentId = NewType("DeploymentId", int)


def cluster_words(cluster: str) -> str:
    """The cluster's name in a sentence. With the default name it would read "cluster cluster"."""
    return "the cluster" if cluster == "cluster" else f"cluster {cluster}"


def joined_key(*parts: str | int) -> str:
    """Join the parts of a key with ``#``; different lists of parts never give the same key.

    Only the last part may contain a ``#`` (a repository's name, say): otherwise ``a#b`` + ``c`` and ``a`` + ``b#c``
    would collide. No part may be empty, and a number is written without sign or padding.
    """
    texts = []
    for position, part in enumerate(parts):
        if type(part) is int and part >= 0:
            texts.append(str(part))
            continue
        if isinstance(part, bool) or (isinstance(part, int) and part < 0):
            raise BadRequest(f"key part {part!r}: expected text or a number that is not negative")
        text = str(part)
        if not text:
            raise BadRequest(f"key part {position + 1} of {len(parts)} is empty")
        if "#" in text and position < len(parts) - 1:
            raise BadRequest(f"key part {text!r}: only the last part of a key may contain '#'")
        texts.append(text)
    return "#".join(texts)


def nonce(source: random.Random | None = None) -> str:
    """Eight random characters that distinguish two owners; seeded under the simulator."""
    return f"{source.getrandbits(32):08x}" if source else secrets.token_hex(4)
