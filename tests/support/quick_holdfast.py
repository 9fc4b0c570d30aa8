"""The command line with shorter pauses: `python -m tests.support.quick_holdfast run …`.

During an action the daemon ticks every five seconds, and it waits as long before it looks at what a watch reports. Here
both take one second: most of a scenario's time was spent in these pauses. Nothing else differs from `holdfast`.
"""

from functools import partial

from holdfast.cli.main import main
from holdfast.entrypoints import daemon, server

PAUSE_SECONDS = 1.0


def shorten_pauses() -> None:
    for module, name, value in (
        (daemon, "AGAIN_SECONDS", PAUSE_SECONDS),
        (server, "Debouncer", partial(daemon.Debouncer, PAUSE_SECONDS)),
    ):
        assert hasattr(module, name), f"{module.__name__} has no {name} any more"
        setattr(module, name, value)


if __name__ == "__main__":
    shorten_pauses()
    main()
