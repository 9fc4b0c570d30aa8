"""Which files are believed."""

import os
import stat
from pathlib import Path

import pytest

from holdfast.kernel.errors import BadSetting
from holdfast.kernel.file_trust import UntrustedFile, distrust_reason, read_trusted
from holdfast.kernel.settings import load_settings

ME, ROOT, STRANGER = os.geteuid(), 0, 4_000_001


def found(owner: int, mode: int) -> os.stat_result:
    return os.stat_result((mode, 1, 1, 1, owner, 1, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("owner", "mode", "reason"),
    [
        (ME, stat.S_IFREG | 0o644, ""),
        (ROOT, stat.S_IFREG | 0o644, ""),
        (STRANGER, stat.S_IFREG | 0o600, "is owned by another user (uid 4000001)"),
        (ME, stat.S_IFREG | 0o664, "is writable by other users (mode 0664)"),
        (ROOT, stat.S_IFREG | 0o602, "is writable by other users (mode 0602)"),
        (ME, stat.S_IFDIR | 0o755, ""),
        (ME, stat.S_IFDIR | 0o775, "is writable by other users (mode 0775)"),
        (ROOT, stat.S_IFDIR | 0o1777, ""),
        (STRANGER, stat.S_IFDIR | 0o1777, "is owned by another user (uid 4000001)"),
    ],
)
def test_only_what_a_trusted_user_alone_can_have_written_is_believed(owner: int, mode: int, reason: str) -> None:
    assert distrust_reason(found(owner, mode)) == reason


def test_the_owner_of_holdfasts_code_is_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Root in a CI job runs the checkout of another user, who could change the program anyway."""
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER + 1)
    owner = Path(load_settings.__code__.co_filename).stat().st_uid
    assert distrust_reason(found(owner, stat.S_IFREG | 0o644)) == ""
    assert distrust_reason(found(STRANGER, stat.S_IFREG | 0o644)) != ""


def test_settings_that_others_may_write_are_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("holdfast.toml")
    file.write_text("MAX_WORKERS = 3\n", encoding="utf-8")
    file.chmod(0o644)
    assert load_settings({}).max_workers == 3
    file.chmod(0o666)
    with pytest.raises(BadSetting) as caught:
        load_settings({})
    assert str(caught.value) == (
        "holdfast.toml was not read: it is writable by other users (mode 0666); run: chmod go-w holdfast.toml"
    )


def test_the_remedy_fits_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """umask 002 makes every new file writable by the group; chown would not help."""
    file = tmp_path / "holdfast.toml"
    file.write_text("MAX_WORKERS = 3\n", encoding="utf-8")
    file.chmod(0o664)
    with pytest.raises(UntrustedFile) as shared:
        read_trusted(file)
    assert shared.value.remedy == "chmod go-w"
    monkeypatch.setattr("holdfast.kernel.file_trust._trusted_users", lambda: frozenset({STRANGER}))
    with pytest.raises(UntrustedFile) as foreign:
        read_trusted(file)
    assert foreign.value.remedy == 'sudo chown "$(id -u)"'
