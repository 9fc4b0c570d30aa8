"""Ways to restrict the console."""

from holdfast.console.http.access import Access
from tests.clocks import StillClock
from tests.support.console_world import OPERATOR, OWN, READER

CLOCK = StillClock()
OPEN = Access(CLOCK, "127.0.0.1", OWN)
TOKENS = Access(CLOCK, "0.0.0.0", OWN, operator_token=OPERATOR, reader_token=READER)  # noqa: S104


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}
