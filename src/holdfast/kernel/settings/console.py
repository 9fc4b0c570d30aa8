"""The settings of the web pages: who may look, and who may act.

On this machine alone, whoever reaches the port may do both. Beyond it nothing is shown until one of these is set.
"""

from dataclasses import dataclass

from holdfast.kernel.settings.declaring import Declaration, setting
from holdfast.kernel.settings.kinds import Maybe, Text, Words

_TOKEN = Text("a secret of 16 to 256 characters without spaces", r"[!-~]{16,256}")


def _token(example: str, help_text: str) -> str | None:
    return setting(Maybe(_TOKEN), default=None, example=example, group="Console", help_text=help_text, secret=True)


@dataclass(frozen=True, kw_only=True)
class ConsoleSettings(Declaration):
    console_token: str | None = _token(
        "8c1f6b6e0d5f4f0e9a7b", "The token of operators: with it, pages and API show everything and take orders."
    )
    console_read_token: str | None = _token(
        "1d5f0a9e7c3b4f2e8a6d", "The token of readers: with it, pages and API show everything, and change nothing."
    )
    console_user_header: str | None = setting(
        Maybe(Text("the name of an HTTP header", r"[A-Za-z0-9-]{1,64}")),
        default=None,
        example="X-Forwarded-Email",
        group="Console",
        help_text="The header in which a proxy names who is signed in; it must drop what strangers put there.",
    )
    console_operators: tuple[str, ...] | None = setting(
        Maybe(Words("a list of names as CONSOLE_USER_HEADER has them", r"[!-~]{1,256}")),
        default=None,
        example="ada@example.com,grace@example.com",
        group="Console",
        help_text="Who of those that CONSOLE_USER_HEADER names may act; the others may look.",
    )
    console_proxies: tuple[str, ...] = setting(
        Words("a list of IP addresses", r"[0-9A-Fa-f.:]{2,45}"),
        default=("127.0.0.1", "::1"),
        example="10.0.0.5",
        group="Console",
        help_text="The addresses of proxies whose CONSOLE_USER_HEADER is believed.",
    )
