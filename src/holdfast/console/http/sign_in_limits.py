"""Limits for guessing tokens, at the sign-in and with bearer tokens.

An address that has sent ten different wrong tokens is refused for the rest of its quarter of an hour, whatever it sends
next. If there were more than a hundred from all addresses together, each address has one attempt. So a stranger cannot
keep others out: an address without a wrong token is never refused, and open sessions need no token. The same wrong
token again is no guess: a program with an old token counts once.

Only the event loop's thread uses this, so it needs no lock.
"""

import hashlib
import logging
import math
import secrets
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Final

from holdfast.kernel.instants import Instant

WINDOW_SECONDS: Final = 900
WRONG_PER_ADDRESS_MOST: Final = 10
WRONG_OVERALL_MOST: Final = 100
ADDRESSES_MOST: Final = 1000
_NETWORK_BITS: Final = 64  # one customer has at least this IPv6 network, and all of its addresses
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Wrong:
    """The wrong tokens of one address, as digests, and when the first of them came."""

    since: Instant
    tokens: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class SignInLimits:
    _wrong: dict[str, _Wrong] = field(default_factory=dict)  # in the order of `since`
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)
    _is_flooded: bool = False

    def refused_seconds(self, address: str, now: Instant) -> int:
        """For how long the address is refused; 0 if its token is checked."""
        self._forget(now)
        found = self._wrong.get(_network(address))
        most = 1 if self._is_flooded else WRONG_PER_ADDRESS_MOST
        if found is None or len(found.tokens) < most:
            return 0
        return max(1, math.ceil(WINDOW_SECONDS - now.seconds_since(found.since)))

    def failed(self, address: str, token: str, now: Instant) -> None:
        """Count a wrong token. Each is logged, up to the overall limit; then one line says that there are more."""
        self._forget(now)
        network = _network(address)
        found = self._wrong.get(network) or _Wrong(now)
        digest = hashlib.blake2b(token.encode("utf-8", "replace"), key=self._key, digest_size=8).digest()
        if digest in found.tokens or len(found.tokens) >= WRONG_PER_ADDRESS_MOST:
            return
        if network not in self._wrong and len(self._wrong) >= ADDRESSES_MOST:
            del self._wrong[next(iter(self._wrong))]
        found.tokens.add(digest)
        self._wrong[network] = found
        if not self._is_flooded:
            _log.warning("sign-in failed: wrong token %d from %s", len(found.tokens), network)
        if not self._is_flooded and self._count() > WRONG_OVERALL_MOST:
            self._is_flooded = True
            _log.error(
                "more than %d wrong tokens within %d minutes, from %d addresses; each now has one attempt, and further "
                "failures are not logged until this has passed",
                WRONG_OVERALL_MOST,
                WINDOW_SECONDS // 60,
                len(self._wrong),
            )

    def _forget(self, now: Instant) -> None:
        """Drop what is older than the window. Also what is in the future: the clock was set back."""
        past = [key for key, each in self._wrong.items() if not 0 <= now.seconds_since(each.since) < WINDOW_SECONDS]
        for key in past:
            del self._wrong[key]
        if past:
            self._is_flooded = self._count() > WRONG_OVERALL_MOST

    def _count(self) -> int:
        return sum(len(each.tokens) for each in self._wrong.values())


def _network(address: str) -> str:
    """An IPv4 address, or the network of an IPv6 address."""
    try:
        found = ip_address(address)
    except ValueError:
        return "unknown"
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return f"{IPv6Address(int(found) >> _NETWORK_BITS << _NETWORK_BITS)}/{_NETWORK_BITS}"
