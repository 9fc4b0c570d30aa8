"""GitHub: does it know us, what may the App do, and do its webhooks reach us?

Read-only. The token of an installation, which is made to see that it can be, ends by itself within an hour.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.entrypoints.doctor.findings import Finding, failed, not_asked, of_error, ok, warning
from holdfast.entrypoints.github_loops import is_configured, open_github
from holdfast.entrypoints.webhooks import webhook_secrets
from holdfast.jobs.ingest import EVENTS
from holdfast.kernel.errors import HoldfastError, NeedsOperator
from holdfast.kernel.ids import InstallationId
from holdfast.kernel.settings import Settings
from holdfast.kernel.text import cut
from holdfast.ports.clock import Clock
from holdfast.ports.github import DeliveryRecord, GitHub

if TYPE_CHECKING:
    from holdfast.adapters.github_app import Secret
    from holdfast.adapters.http_calls import HttpAnswer

SIGNED_IN: Final = "GitHub"
# Jobs come with these; the others tell of approvals.
_NEEDED_EVENTS: Final = ("workflow_job", "workflow_run")
_GIVEN_EVENTS: Final = ("installation", "ping")  # every App gets them, unasked
# Reading runs, and running them again.
PERMISSIONS: Final = {"actions": "write"}
_LEVELS: Final = ("read", "write", "admin")
_FAILING_SHARE: Final = 0.1


class _Api:
    """Questions that nothing but a check asks."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        from holdfast.adapters.github_app import AppIdentity, Identity, TokenIdentity
        from holdfast.adapters.github_calls import GitHubCalls
        from holdfast.adapters.http_calls import HttpPlace

        s = settings
        place = HttpPlace(s.github_api_url, clock, setting="GITHUB_API_URL", ca_file=s.github_ca_file, https_only=True)
        self._calls = GitHubCalls(place, clock)
        self._app_id = s.github_app_id
        self._identity: Identity
        if s.github_app_id is not None:
            key = _secret(clock, "GITHUB_APP_KEY_FILE", s.github_app_key_file, s.github_app_key_parameter)
            self._identity = AppIdentity(s.github_app_id, key, self._calls, clock)
        else:
            token = _secret(clock, "GITHUB_TOKEN_FILE", s.github_token_file, s.github_token_parameter)
            self._identity = TokenIdentity(token)

    def token(self, installation: InstallationId) -> None:
        self._identity.bearer(installation)

    def ask(self, path: str) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        answer = self._answer(path)
        found: dict[str, Any] = self._calls.decoded(answer.body, dict[str, Any])
        return found, answer.headers

    def ask_list(self, path: str) -> Sequence[Mapping[str, Any]]:
        found: list[dict[str, Any]] = self._calls.decoded(self._answer(path).body, list[dict[str, Any]])
        return found

    def _answer(self, path: str) -> "HttpAnswer":
        from holdfast.adapters.github_calls import NotSignedIn

        who = None if self._app_id is not None else InstallationId(0)  # a token is the same for all
        try:
            return self._calls.send("GET", path, self._identity.bearer(who), "the App")
        except NotSignedIn as error:
            raise NeedsOperator(
                f"{self._calls}: does not accept who we are (401: {error}); "
                "give a key of GITHUB_APP_ID's App, or a token that is good, and see to the clock"
            ) from error


def _secret(clock: Clock, setting: str, file: Path | None, parameter: str | None) -> "Secret":
    from holdfast.adapters.github_app import secret_in
    from holdfast.entrypoints.world import ssm_parameters

    if file is not None:
        return secret_in(file, setting)
    parameters = ssm_parameters(clock)
    return lambda: parameters.secret(parameter or "")


def secret(settings: Settings) -> Iterator[Finding]:
    webhook_secrets(settings)
    yield ok("GitHub webhook secret", "is set")


def why_not(settings: Settings) -> str:
    return "" if is_configured(settings) else "no App and no token is set: webhooks that are lost stay lost"


def signed_in(settings: Settings, clock: Clock) -> Iterator[Finding]:
    api = _Api(settings, clock)
    if settings.github_app_id is None:
        headers = api.ask("/rate_limit")[1]
        scopes = headers.get("x-oauth-scopes")
        yield ok(SIGNED_IN, "the token is accepted" + ("" if scopes is None else f"; it has: {scopes or 'no scope'}"))
        if scopes is not None and "repo" not in scopes.replace(" ", "").split(","):
            yield warning(SIGNED_IN, "the token lacks the scope repo", "make one with it, or use an App")
        return
    app = api.ask("/app")[0]
    yield ok(SIGNED_IN, f"the App {cut(str(app.get('slug', settings.github_app_id)))} is accepted")
    yield from permissions("the App", app.get("permissions") or {})
    yield from _events(app.get("events") or [])
    yield from _installations(api)


def permissions(who: str, granted: Mapping[str, Any]) -> Iterator[Finding]:
    name = f"GitHub permissions: {who}"
    missing = [
        f"{permission}: {needed}"
        for permission, needed in PERMISSIONS.items()
        if _level(granted.get(permission)) < _level(needed)
    ]
    if missing:
        fix = "grant it on the App's page at GitHub; each installation's owner must then accept it"
        yield failed(name, f"lacks {', '.join(missing)}", fix)
    else:
        yield ok(name, ", ".join(f"{permission}: {granted[permission]}" for permission in PERMISSIONS))


def _level(word: object) -> int:
    return _LEVELS.index(word) if word in _LEVELS else -1


def _events(subscribed: Sequence[str]) -> Iterator[Finding]:
    missing = [event for event in EVENTS if event not in (*subscribed, *_GIVEN_EVENTS)]
    fix = "subscribe to them on the App's page at GitHub, under Permissions & events"
    if set(missing) & set(_NEEDED_EVENTS):
        yield failed("GitHub events", f"the App does not hear of {', '.join(missing)}", fix)
    elif missing:
        yield warning("GitHub events", f"the App does not hear of {', '.join(missing)}: approvals are not seen", fix)
    else:
        yield ok("GitHub events", ", ".join(subscribed))


def _installations(api: _Api) -> Iterator[Finding]:
    found = api.ask_list("/app/installations?per_page=100")
    if not found:
        yield warning("GitHub installations", "the App is installed nowhere", "install it in your organisation")
    for each in found:
        who = f"installation {each.get('id')} ({cut(str((each.get('account') or {}).get('login', '?')))})"
        if each.get("suspended_at"):
            yield failed(f"GitHub {who}", "is suspended", "its owner can end that in the settings of the organisation")
            continue
        yield from permissions(who, each.get("permissions") or {})
        try:
            api.token(InstallationId(int(each["id"])))
            yield ok(f"GitHub {who}", "gives a token")
        except HoldfastError as error:
            yield of_error(f"GitHub {who}", error)


def webhooks(settings: Settings, clock: Clock) -> Iterator[Finding]:
    """How GitHub sends, and whether what it sent lately arrived."""
    if settings.github_app_id is None:
        yield not_asked("GitHub webhooks", "only an App can read the log of its deliveries")
        return
    config = _Api(settings, clock).ask("/app/hook/config")[0]
    yield from _hook(config)
    yield from deliveries(open_github(settings, clock))


def _hook(config: Mapping[str, Any]) -> Iterator[Finding]:
    page = "on the App's page at GitHub"
    if not config.get("url"):
        yield failed("GitHub webhook", "the App has no webhook URL", f"set it {page}: https://HOST/webhooks/github")
        return
    if not config.get("secret"):
        yield failed("GitHub webhook", "the App has no webhook secret", f"set it {page}, as GITHUB_WEBHOOK_SECRET")
    if str(config.get("insecure_ssl", "0")) != "0":
        yield warning("GitHub webhook", "GitHub does not verify our certificate", f"enable SSL verification {page}")
    if config.get("content_type") != "json":
        yield failed("GitHub webhook", "it is sent as a form", f"choose the content type application/json {page}")
    yield ok("GitHub webhook", f"goes to {cut(str(config['url']), 120)}")


def deliveries(github: GitHub) -> Iterator[Finding]:
    """Of the newest hundred. A delivery that failed first and arrived later has arrived."""
    newest: dict[str, DeliveryRecord] = {}
    for record in github.deliveries().records:
        known = newest.get(record.guid)
        if known is None or (record.is_success and not known.is_success):
            newest[record.guid] = record
    lost = [record for record in newest.values() if not record.is_success]
    name = "GitHub deliveries"
    if not newest:
        yield warning(name, "none in the last three days", "does the App's webhook lead here, and is it active?")
    elif not lost:
        yield ok(name, f"the last {len(newest)} arrived")
    else:
        codes = ", ".join(sorted({str(record.status_code or "no answer") for record in lost}))
        seen = f"{len(lost)} of the last {len(newest)} did not arrive ({codes}), the newest at {lost[0].delivered_at}"
        fix = "is the address reachable from GitHub, the secret the same, the server up? Lost ones are asked for again"
        yield (failed if len(lost) > len(newest) * _FAILING_SHARE else warning)(name, seen, fix)
