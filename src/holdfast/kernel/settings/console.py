"""Settings of the console and the API: who may read, and who may make changes.

On a loopback address every client may do both. On any other address, nothing is shown until one of these is set.
"""

from dataclasses import dataclass

from holdfast.kernel.settings.declaring import Declaration, setting
from holdfast.kernel.settings.kinds import Maybe, Text, WordList

_TOKEN = Text("a secret of 16 to 256 characters without spaces", r"[!-~]{16,256}")


def _token(example: str, help_text: str) -> str | None:
    return setting(Maybe(_TOKEN), default=None, example=example, group="Console", help_text=help_text, secret=True)


@dataclass(frozen=True, kw_only=True)
class ConsoleSettings(Declaration):
    console_token: str | None = _token(
        "8c1f6b6e0d5f4f0e9a7b", "The operators' token: read everything and make changes."
    )
    console_read_token: str | None = _token(
        "1d5f0a9e7c3b4f2e8a6d", "The readers' token: read everything, change nothing."
    )
    console_user_header: str | None = setting(
        Maybe(Text("the name of an HTTP header", r"[A-Za-z0-9-]{1,64}")),
        default=None,
        example="X-Forwarded-Email",
        group="Console",
        help_text="The header in which a proxy passes the signed-in user. The proxy must drop it from client requests.",
    )
    console_operators: tuple[str, ...] | None = setting(
        Maybe(WordList("a list of user names as CONSOLE_USER_HEADER passes them", r"[!-~]{1,256}")),
        default=None,
        example="ada@example.com,grace@example.com",
        group="Console",
        help_text="The users in CONSOLE_USER_HEADER who may make changes. All others may only read.",
    )
    console_proxies: tuple[str, ...] = setting(
        WordList("a list of IP addresses", r"[0-9A-Fa-f.:]{2,45}"),
        default=("127.0.0.1", "::1"),
        example="10.0.0.5",
        group="Console",
        help_text="The addresses of the proxies whose CONSOLE_USER_HEADER and X-Forwarded-For are trusted.",
    )
    console_proxy_secret: str | None = _token(
        "5e0a7b9d2c4f4e1b8d6a",
        "The secret that the proxy sends in the header X-Holdfast-Proxy. CONSOLE_USER_HEADER needs it: the proxy's "
        "address alone does not tell it from other programs on its machine.",
    )
    console_hosts: tuple[str, ...] | None = setting(
        Maybe(WordList("a list of host names, with the port if it is not the default", r"[A-Za-z0-9._:\[\]-]{1,261}")),
        default=None,
        example="holdfast.example.com",
        group="Console",
        help_text="The Host headers under which the proxy serves the console. CONSOLE_USER_HEADER needs it: another "
        "name that resolves to the proxy's address must not reach the console.",
    )
