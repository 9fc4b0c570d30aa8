"""The list of benchmarks: every module of `bench` is one, with the name of the module."""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from bench.harness.figures import Figure
from bench.harness.run import Run

BENCHMARKS: Final = Path(__file__).parents[1]

# What the command line takes for something else.
RESERVED: Final = ("all", "list")


class NoSuchBenchmark(Exception):
    """No benchmark has this name; the message suggests a similar one."""


class BadBenchmark(Exception):
    """A module in the folder of benchmarks that is not one."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """`about` is the module's docstring, on one line."""

    name: str
    about: str
    measure: Callable[[Run], list[Figure]]

    @property
    def title(self) -> str:
        """The first sentence."""
        return self.about.partition(". ")[0].removesuffix(".")


def names(directory: Path = BENCHMARKS) -> list[str]:
    return sorted(path.stem for path in directory.glob("*.py") if not path.stem.startswith("_"))


def every_benchmark() -> list[Benchmark]:
    return [benchmark(name) for name in names()]


def benchmark(name: str, package: str = "bench", known: list[str] | None = None) -> Benchmark:
    """The benchmark of this name, which must have a docstring."""
    known = names() if known is None else known
    if name not in known:
        close = get_close_matches(name, [*known, *RESERVED], n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise NoSuchBenchmark(f"there is no benchmark {name!r}{meant} (python -m bench list shows all)")
    if name in RESERVED:
        raise BadBenchmark(f"{package}/{name}.py: `python -m bench {name}` means something else; name it otherwise")
    module = importlib.import_module(f"{package}.{name}")
    about = " ".join(inspect.cleandoc(module.__doc__ or "").split())
    if not about:
        raise BadBenchmark(f"{package}/{name}.py has no docstring: what is measured, against what, how?")
    measure = getattr(module, "measure", None)
    if not callable(measure):
        raise BadBenchmark(f"{package}/{name}.py has no function measure(run); what benchmarks share is in harness/")
    return Benchmark(name, about, measure)
