"""Names of things. A NewType each, so that a job id never passes for a run id."""

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
    """How a sentence names it: the default name is no name, and would read "cluster cluster"."""
    return "the cluster" if cluster == "cluster" else f"cluster {cluster}"


def joined_key(*parts: str | int) -> str:
    """Join the parts of a key with ``#``, such that two different lists of parts never give the same key.

    Only the last part may hold a ``#`` itself (a repository's name, say): in any earlier one, ``a#b`` + ``c`` and
    ``a`` + ``b#c`` would collide. No part is empty, and a number is written without sign or padding.
    """
    texts = []
    for position, part in enumerate(parts):
        if type(part) is int and part >= 0:
            texts.append(str(part))
            continue
        if isinstance(part, bool) or (isinstance(part, int) and part < 0):
            raise BadRequest(f"key part {part!r}: expected text or a number from 0 up")
        text = str(part)
        if not text:
            raise BadRequest(f"key part {position + 1} of {len(parts)} is empty")
        if "#" in text and position < len(parts) - 1:
            raise BadRequest(f"key part {text!r}: only the last part of a key may hold '#'")
        texts.append(text)
    return "#".join(texts)


def nonce(source: random.Random | None = None) -> str:
    """Eight characters that tell two owners apart; from the seeded source under the simulator."""
    return f"{source.getrandbits(32):08x}" if source else secrets.token_hex(4)
