"""The directory of a simulated world is not used for a real cluster."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.main import cli
from holdfast.entrypoints.wiring.stores import open_store, opened_tables
from holdfast.kernel.errors import BadSetting
from holdfast.kernel.settings import load_settings


def settings_of(data: Path, world: str, **more: str) -> dict[str, str]:
    return {"HOLDFAST_DATA": str(data), "HOLDFAST_WORLD": world, "AWS_DEFAULT_REGION": "eu-west-1", **more}


@pytest.fixture
def lived_in(tmp_path: Path) -> Path:
    done = CliRunner().invoke(cli, ["tick", "--data", str(tmp_path)], env=settings_of(tmp_path, "sim"))
    assert done.exit_code == 0, done.output
    return tmp_path


def test_the_data_of_a_simulated_world_is_not_taken_for_a_real_cluster(lived_in: Path) -> None:
    real = load_settings(settings_of(lived_in, "aws"))
    for writable in (False, True):
        with pytest.raises(BadSetting, match="belongs to a simulated world"):
            open_store(real, writable=writable)
    with pytest.raises(BadSetting, match="choose another directory with --data"), opened_tables(real):
        pass
    status = CliRunner().invoke(cli, ["status"], env=settings_of(lived_in, "aws"))
    assert (status.exit_code, "belongs to a simulated world" in status.stderr) == (2, True)


def test_the_simulated_world_continues_and_another_file_works(lived_in: Path, tmp_path: Path) -> None:
    open_store(load_settings(settings_of(lived_in, "sim")), writable=False).close()
    elsewhere = f"sqlite:{tmp_path / 'real' / 'holdfast.db'}"
    open_store(load_settings(settings_of(lived_in, "aws", HOLDFAST_STORE=elsewhere))).close()
