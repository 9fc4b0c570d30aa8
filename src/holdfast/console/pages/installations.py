"""Which installation a page shows, and addresses of pages with their parameters."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from holdfast.kernel.errors import NotFound
from holdfast.kernel.text import cut


def chosen_installation(known: Sequence[int], params: Mapping[str, str]) -> tuple[Sequence[int], int | None]:
    """Those that are known, and the one to show: the one in the address, or the first."""
    text = params.get("installation_id", "")
    if not text:
        return known, known[0] if known else None
    found = next((each for each in known if str(each) == text), None)
    if found is None:
        raise NotFound(f"installation {cut(text)!r} is unknown")
    return known, found


def url_with(path: str, query: Mapping[str, str]) -> str:
    shown = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(shown)}" if shown else path
