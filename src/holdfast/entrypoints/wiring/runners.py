"""Builds what the runner fleet offers from `[runners]` in holdfast.toml and the table of instance types.

The table is `instance_types.json` in the data directory, if 'holdfast runners refresh' wrote it; otherwise the shipped
one. Running processes read it at their next start.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdfast.entrypoints.wiring.data_files import read_limited, replace_file
from holdfast.fleet.instance_types import InstanceType, described, instance_types, types_from_json
from holdfast.kernel.errors import BadRequest, BadSetting, NeedsOperator
from holdfast.kernel.settings import Settings
from holdfast.runners.offer import Offer
from holdfast.views.runner_classes import RefreshedTypes

FILE_NAME: Final = "instance_types.json"


def runner_offer(settings: Settings) -> Offer:
    """The offer; BadSetting with a line for each profile that no machine fits."""
    offer = Offer(settings.runners, type_table(settings))
    problems = list(offer.type_problems())
    if problems:
        raise BadSetting("\n".join(problems))
    return offer


def type_table(settings: Settings) -> Mapping[str, InstanceType]:
    """The table in use."""
    path = settings.holdfast_data / FILE_NAME
    try:
        return types_from_json(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return instance_types()
    except (OSError, UnicodeDecodeError, BadRequest) as error:
        raise NeedsOperator(
            f"{path} cannot be used as instance types: {error}; replace it with 'holdfast runners refresh' or remove it"
        ) from error


def refresh_types(settings: Settings, saved: Path, *, write: bool) -> RefreshedTypes:
    """Make the table from a saved answer of EC2, and write it if `write`."""
    made = described(read_limited(saved, "the answer of one region"), f"EC2's DescribeInstanceTypes, from {saved.name}")
    new, old = types_from_json(made), instance_types()
    if not new:
        raise BadRequest(f"{saved} has no instance types; nothing was written")
    path = settings.holdfast_data / FILE_NAME
    if write:
        replace_file(path, made, "instance types")
    return RefreshedTypes(
        file=str(path),
        types=len(new),
        added=sorted(new.keys() - old.keys()),
        gone=sorted(old.keys() - new.keys()),
        done=write,
    )
