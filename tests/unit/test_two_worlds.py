"""A directory in which a simulated world lived is not a real cluster's."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.main import cli
from holdfast.entrypoints.wiring import open_store, opened_tables
from holdfast.kernel.errors import BadSetting
from holdfast.kernel.settings import load_settings


def settings_of(data: Path, world: str, **more: str) -> dict[str, str]:
    return {"HOLDFAST_DATA": str(data), "HOLDFAST_WORLD": world, "AWS_DEFAULT_REGION": "eu-west-1", **more}


@pytest.fixture
def lived_in(tmp_path: Path) -> Path:
    done = CliRunner().invoke(cli, ["tick", "--data", str(tmp_path)], env=settings_of(tmp_path, "sim"))
    assert done.exit_code == 0, done.output
    return tmp_path


def test_what_a_simulated_world_left_is_not_taken_for_a_cluster(lived_in: Path) -> None:
    real = load_settings(settings_of(lived_in, "aws"))
    for writable in (False, True):
        with pytest.raises(BadSetting, match="holds what a simulated world left"):
            open_store(real, writable=writable)
    with pytest.raises(BadSetting, match="name another directory with --data"), opened_tables(real):
        pass
    told = CliRunner().invoke(cli, ["status"], env=settings_of(lived_in, "aws"))
    assert (told.exit_code, "holds what a simulated world left" in told.stderr) == (2, True)


def test_the_simulated_world_goes_on_and_another_file_is_fine(lived_in: Path, tmp_path: Path) -> None:
    open_store(load_settings(settings_of(lived_in, "sim")), writable=False).close()
    elsewhere = f"sqlite:{tmp_path / 'real' / 'holdfast.db'}"
    open_store(load_settings(settings_of(lived_in, "aws", HOLDFAST_STORE=elsewhere))).close()
