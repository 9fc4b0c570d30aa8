"""Which GitHub a webhook comes from: its server and its installation.

One secret signs everything, so it does not distinguish installations or servers:

- GITHUB_INSTALLATIONS may list the installations that are accepted.
- Keys contain the installation, and two servers may use the same id (0 without a GitHub App). If GitHub's API is
  configured, its server is the only one. Otherwise the first server of an installation is stored. Webhooks from another
  one are refused, so that its delivery log shows them as failed.
- An organization's own webhook names no installation. If a GitHub App is installed for the owner as well, its
  installation is used, so each job is tracked once. The first installation of an owner is stored, and no webhook
  replaces it.
"""

import logging
import re
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import urlsplit

from holdfast.jobs.intake import bounds
from holdfast.jobs.intake.payloads import (
    DeploymentPayload,
    Installation,
    JobPayload,
    Repository,
    ReviewPayload,
    RunPayload,
    UnusablePayload,
)
from holdfast.jobs.intake.webhook import WebhookRefusal, WebhookRefused
from holdfast.kernel.ids import InstallationId, joined_key
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.store import Key, Store, attr
from holdfast.ports.store.tables import STATE

RepositoryPayload = JobPayload | RunPayload | DeploymentPayload | ReviewPayload
K = TypeVar("K")
V = TypeVar("V")
NO_INSTALLATION: Final = InstallationId(0)
_HOST: Final = re.compile(r"[a-z0-9.-]{1,253}(:[0-9]{1,5})?", re.ASCII)
_UNKNOWN_SECONDS: Final = 60  # an owner without an installation is looked up again after that
_OWNERS_MOST: Final = 10_000
_log = logging.getLogger(__name__)


@dataclass
class Senders:
    """Admits payloads. What it remembers is in the store as well, so each is written once per process.

    `server`: the host of the GitHub server that is tracked; None if the first of each installation decides.
    """

    allowed: frozenset[int] | None = None
    server: str | None = None
    _servers: dict[InstallationId, str] = field(default_factory=dict)
    _installations: dict[tuple[str, str], InstallationId] = field(default_factory=dict)
    _unknown_until: dict[tuple[str, str], Instant] = field(default_factory=dict)
    _compared: dict[tuple[str, str, InstallationId], None] = field(default_factory=dict)  # with what is stored

    def admit(self, store: Store, payload: RepositoryPayload, now: Instant) -> None:
        """Check the sender, and complete the payload's installation; UnusablePayload if it is not accepted."""
        server, owner, found = _named(payload)
        if found == NO_INSTALLATION and server:
            found = self._installation_of(store, (server, owner), now)
            payload.installation = Installation(found)
        self.check_allowed(found)
        if server:
            self._check_server(store, found, server)
            if found != NO_INSTALLATION and (server, owner, found) not in self._compared:
                self._keep_installation(store, (server, owner), found)

    def recognize(self, payload: RepositoryPayload) -> None:
        """As `admit`, as far as this process remembers: without the store, which may be away."""
        server, owner, found = _named(payload)
        if found == NO_INSTALLATION and server:
            found = self._installations.get((server, owner), NO_INSTALLATION)
            payload.installation = Installation(found)
        self.check_allowed(found)
        if server:
            _check_same_server(found, server, self.server or self._servers.get(found, server))

    def check_allowed(self, installation: InstallationId) -> None:
        if self.allowed is not None and installation not in self.allowed:
            raise UnusablePayload(f"installation {installation} is not in GITHUB_INSTALLATIONS")

    def forget(self) -> None:
        """What was remembered may not have been stored: a transaction has failed."""
        self._servers.clear()
        self._installations.clear()
        self._compared.clear()

    def _keep_installation(self, store: Store, owner: tuple[str, str], found: InstallationId) -> None:
        """Store the owner's installation, unless it has one: any webhook may name any owner."""
        written = store.update(STATE, owner_key(*owner), attr("installation").set_if_absent(found))
        known = InstallationId(int(written.new["installation"]))
        if known != found:
            _log.warning(
                "%s has installation %d, and now sends webhooks of %d; its organization's own webhooks stay with %d. "
                "If the App was installed again, remove %s from STATE_TABLE",
                *(cut(owner[1]), known, found, known, cut(str(owner_key(*owner)))),
            )
        _remember(self._installations, owner, known)
        _remember(self._compared, (*owner, found), None)

    def _check_server(self, store: Store, installation: InstallationId, server: str) -> None:
        known = self.server or self._servers.get(installation)
        if known is None:
            written = store.update(STATE, server_key(installation), attr("server").set_if_absent(server))
            known = self._servers[installation] = str(written.new["server"])
        _check_same_server(installation, server, known)

    def _installation_of(self, store: Store, owner: tuple[str, str], now: Instant) -> InstallationId:
        known = self._installations.get(owner)
        if known is not None or now < self._unknown_until.get(owner, now):
            return known or NO_INSTALLATION
        item = store.get(STATE, owner_key(*owner), consistent=False)
        if item is None:
            _remember(self._unknown_until, owner, now.plus(_UNKNOWN_SECONDS))
            return NO_INSTALLATION
        found = InstallationId(int(item["installation"]))
        _remember(self._installations, owner, found)
        return found


def _named(payload: RepositoryPayload) -> tuple[str, str, InstallationId]:
    """The server, the owner and the installation that the payload names."""
    owner = bounds.repository_name(payload.repository.full_name).partition("/")[0].lower()
    found = InstallationId(payload.installation.id) if payload.installation else NO_INSTALLATION
    return server_of(payload.repository), owner, found


def _check_same_server(installation: InstallationId, server: str, known: str) -> None:
    if known != server:
        raise WebhookRefused(
            WebhookRefusal.WRONG_SERVER,
            f"installation {installation} of {server}: {cut(known)} is tracked here; track each GitHub server in its "
            f"own tables, and check GITHUB_API_URL; without it, remove {server_key(installation)} from STATE_TABLE if "
            "the server was renamed",
        )


def _remember(memory: dict[K, V], key: K, value: V) -> None:
    if len(memory) >= _OWNERS_MOST:
        memory.clear()
    memory[key] = value


def server_key(installation: InstallationId) -> Key:
    return Key(joined_key("github", "server", installation))


def owner_key(server: str, owner: str) -> Key:
    return Key(joined_key("github", "owner", server, owner))


def server_of(repository: Repository) -> str:
    """The host in the repository's URL, which is signed like the whole body; empty if unknown."""
    try:
        host = urlsplit(repository.html_url or "").netloc.lower()
    except ValueError:
        return ""
    return host if _HOST.fullmatch(host) else ""
