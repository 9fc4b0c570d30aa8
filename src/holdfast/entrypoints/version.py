"""Which Holdfast this is."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    try:
        return version("holdfast")
    except PackageNotFoundError:
        return "0 (not installed)"  # run from a source tree
