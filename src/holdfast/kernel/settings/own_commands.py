"""Commands that messages suggest. They find the same data as the command that prints them."""

import shlex

from holdfast.kernel.settings import Settings


def own_command(settings: Settings, words: str) -> str:
    """`holdfast` with these words, and with the --config and --data that this process was given."""
    given = settings.sources
    options = []
    if given.get("HOLDFAST_CONFIG") == "--config":
        options += ["--config", str(settings.holdfast_config)]
    if given.get("HOLDFAST_STORE") == "--data":  # a SQLite file
        options += ["--data", str(settings.holdfast_store.path)]
    elif given.get("HOLDFAST_DATA") == "--data":
        options += ["--data", str(settings.holdfast_data)]
    return shlex.join(["holdfast", *words.split(), *options])
