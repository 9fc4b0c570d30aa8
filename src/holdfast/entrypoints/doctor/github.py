"""GitHub: credentials, the App's permissions, and whether its webhooks reach us.

Read-only, except that it creates an installation token, which expires within an hour.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.adapters.server_date import ServerDate
from holdfast.entrypoints.doctor.aws import ServerTime
from holdfast.entrypoints.doctor.findings import Finding, failed, failed_by_error, ok, skipped, warning
from holdfast.entrypoints.github_loops import github_secret, is_configured, open_github
from holdfast.entrypoints.webhook_receiver import webhook_secrets
from holdfast.jobs.intake.tracker import EVENTS
from holdfast.kernel.errors import HoldfastError, NeedsOperator
from holdfast.kernel.ids import InstallationId
from holdfast.kernel.settings import Settings
from holdfast.kernel.text import cut
from holdfast.ports.clock import Clock
from holdfast.ports.github import DeliveryRecord, GitHub

if TYPE_CHECKING:
    from holdfast.adapters.http_calls import HttpAnswer

SIGNED_IN: Final = "GitHub"
# Jobs need these; the other events carry approvals.
_NEEDED_EVENTS: Final = ("workflow_job", "workflow_run")
_AUTOMATIC_EVENTS: Final = ("installation", "ping")  # every App receives these
# To read runs and rerun them.
PERMISSIONS: Final = {"actions": "write"}
_LEVELS: Final = ("read", "write", "admin")
_FAILING_SHARE: Final = 0.1


class _Api:
    """API calls that only these checks make."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        from holdfast.adapters.github.calls import GitHubCalls
        from holdfast.adapters.github.identity import AppIdentity, Identity, TokenIdentity
        from holdfast.adapters.http_calls import HttpEndpoint

        s = settings
        place = HttpEndpoint(
            s.github_api_url, clock, setting="GITHUB_API_URL", ca_file=s.github_ca_file, https_only=True
        )
        self.date = ServerDate()
        self._calls = GitHubCalls(place, clock, date=self.date)
        self._app_id = s.github_app_id
        self._identity: Identity
        if s.github_app_id is not None:
            key = github_secret(clock, "GITHUB_APP_KEY_FILE", s.github_app_key_file, s.github_app_key_parameter)
            self._identity = AppIdentity(s.github_app_id, key, self._calls, clock)
        else:
            token = github_secret(clock, "GITHUB_TOKEN_FILE", s.github_token_file, s.github_token_parameter)
            self._identity = TokenIdentity(token)

    def token(self, installation: InstallationId) -> None:
        self._identity.bearer(installation)

    def get(self, path: str) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        answer = self._answer(path)
        found: dict[str, Any] = self._calls.decoded(answer.body, dict[str, Any])
        return found, answer.headers

    def get_list(self, path: str) -> Sequence[Mapping[str, Any]]:
        found: list[dict[str, Any]] = self._calls.decoded(self._answer(path).body, list[dict[str, Any]])
        return found

    def _answer(self, path: str) -> "HttpAnswer":
        from holdfast.adapters.github.calls import NotSignedIn

        who = None if self._app_id is not None else InstallationId(0)  # a token is the same for every installation
        try:
            return self._calls.send("GET", path, self._identity.bearer(who), "the App")
        except NotSignedIn as error:
            raise NeedsOperator(
                f"{self._calls}: rejected our credentials (401: {error}); "
                "use a private key of the App in GITHUB_APP_ID, or a valid token, and check the clock"
            ) from error


def secret(settings: Settings) -> Iterator[Finding]:
    webhook_secrets(settings)
    yield ok("GitHub webhook secret", "set")


def why_not(settings: Settings) -> str:
    return "" if is_configured(settings) else "no App or token configured: lost webhooks are not recovered"


def signed_in(settings: Settings, clock: Clock, time: ServerTime) -> Iterator[Finding]:
    api = _Api(settings, clock)
    try:
        yield from _signed_in(settings, api)
    finally:
        # Also of a rejection: a token that is signed with a wrong time is rejected. AWS's time takes precedence.
        theirs = api.date.now()
        if time.theirs is None and theirs is not None:
            time.who, time.theirs, time.ours = "GitHub", theirs, clock.now()


def _signed_in(settings: Settings, api: _Api) -> Iterator[Finding]:
    if settings.github_app_id is None:
        headers = api.get("/rate_limit")[1]
        scopes = headers.get("x-oauth-scopes")
        yield ok(SIGNED_IN, "the token is accepted" + ("" if scopes is None else f"; scopes: {scopes or 'none'}"))
        if scopes is not None and "repo" not in scopes.replace(" ", "").split(","):
            yield warning(SIGNED_IN, "the token lacks the scope repo", "create a token with that scope, or use an App")
        return
    app = api.get("/app")[0]
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
        fix = "grant it in the App's settings on GitHub; the owner of each installation must then accept it"
        yield failed(name, f"lacks {', '.join(missing)}", fix)
    else:
        yield ok(name, ", ".join(f"{permission}: {granted[permission]}" for permission in PERMISSIONS))


def _level(word: object) -> int:
    return _LEVELS.index(word) if word in _LEVELS else -1


def _events(subscribed: Sequence[str]) -> Iterator[Finding]:
    missing = [event for event in EVENTS if event not in (*subscribed, *_AUTOMATIC_EVENTS)]
    fix = "subscribe to them in the App's settings on GitHub, under Permissions & events"
    if set(missing) & set(_NEEDED_EVENTS):
        yield failed("GitHub events", f"the App is not subscribed to {', '.join(missing)}", fix)
    elif missing:
        yield warning(
            "GitHub events", f"the App is not subscribed to {', '.join(missing)}: approvals are not tracked", fix
        )
    else:
        yield ok("GitHub events", ", ".join(subscribed))


def _installations(api: _Api) -> Iterator[Finding]:
    found = api.get_list("/app/installations?per_page=100")
    if not found:
        yield warning("GitHub installations", "the App has no installations", "install it in your organisation")
    for each in found:
        who = f"installation {each.get('id')} ({cut(str((each.get('account') or {}).get('login', '?')))})"
        if each.get("suspended_at"):
            yield failed(f"GitHub {who}", "suspended", "its owner can unsuspend it in the organisation's settings")
            continue
        yield from permissions(who, each.get("permissions") or {})
        try:
            api.token(InstallationId(int(each["id"])))
            yield ok(f"GitHub {who}", "issues tokens")
        except HoldfastError as error:
            yield failed_by_error(f"GitHub {who}", error)


def webhooks(settings: Settings, clock: Clock) -> Iterator[Finding]:
    """The webhook's configuration, and whether recent deliveries arrived."""
    if settings.github_app_id is None:
        yield skipped("GitHub webhooks", "only an App can read its delivery log")
        return
    config = _Api(settings, clock).get("/app/hook/config")[0]
    yield from _hook(config)
    yield from deliveries(open_github(settings, clock))


def _hook(config: Mapping[str, Any]) -> Iterator[Finding]:
    page = "in the App's settings on GitHub"
    if not config.get("url"):
        yield failed("GitHub webhook", "the App has no webhook URL", f"set it {page}: https://HOST/webhooks/github")
        return
    if not config.get("secret"):
        yield failed(
            "GitHub webhook", "the App has no webhook secret", f"set it {page}, to the value of GITHUB_WEBHOOK_SECRET"
        )
    if str(config.get("insecure_ssl", "0")) != "0":
        yield warning("GitHub webhook", "GitHub does not verify our certificate", f"enable SSL verification {page}")
    if config.get("content_type") != "json":
        yield failed("GitHub webhook", "it is sent as form data", f"choose the content type application/json {page}")
    yield ok("GitHub webhook", f"sends to {cut(str(config['url']), 120)}")


def deliveries(github: GitHub) -> Iterator[Finding]:
    """The newest hundred. A delivery that failed and then succeeded counts as delivered."""
    newest: dict[str, DeliveryRecord] = {}
    for record in github.deliveries().records:
        known = newest.get(record.guid)
        if known is None or (record.is_success and not known.is_success):
            newest[record.guid] = record
    lost = [record for record in newest.values() if not record.is_success]
    name = "GitHub deliveries"
    if not newest:
        yield warning(name, "none in the last three days", "check that the App's webhook is active and points here")
    elif not lost:
        yield ok(name, f"the last {len(newest)} succeeded")
    else:
        codes = ", ".join(sorted({str(record.status_code or "no answer") for record in lost}))
        seen = f"{len(lost)} of the last {len(newest)} failed ({codes}), most recently at {lost[0].delivered_at}"
        fix = "check that GitHub can reach the address and the secrets match; failed deliveries are requested again"
        yield (failed if len(lost) > len(newest) * _FAILING_SHARE else warning)(name, seen, fix)
