"""The protocol as TLA+ models: they hold in every state, and each mutant violates its property.

model/README.md says what is modelled, and what is not.
"""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.servers import tlc
from tests.servers.tlc import Verdict
from tests.support.real_servers import skip_or_fail

MODELS: Final = Path(__file__).parents[2] / "model"
CONFIGS: Final = sorted(path.stem for path in MODELS.glob("*.cfg"))
QUICK: Final = "Lease"  # a few seconds; the others wait for `make test-real`
IN_THE_END: Final = "in the end"

# Flags for what the world does, not for what the protocol does about it.
ENVIRONMENT: Final = {
    ("ScaleUp", "CALM"),
    ("ScaleDown", "SPOT"),
    ("ScaleDown", "CRITICAL"),
    ("ScaleDown", "OLDLISTS"),
    ("Spot", "HINTS"),
}

# A configuration, what is changed in it, and the property that must not survive it.
MUTANTS: Final = [
    ("Lease", 'EXPIRY = "ignored"', "OneBeliever"),
    ("Lease", 'EXPIRY = "never"', "NotBlocked"),
    ("Lease", "Skew = 0", "OneBeliever"),
    ("Lease", "FENCED = FALSE", "FencedWrite"),
    ("Lease", "GROWS = FALSE", "FenceMonotone"),
    ("ScaleUp", "FENCED = FALSE", "FencedWrite"),
    ("ScaleUp", "ONEACTION = FALSE; FENCED = FALSE", "OneAction"),
    ("ScaleUp", "TOKEN = FALSE", "TokenOnce"),
    ("ScaleUp", "INTENT = FALSE", "IntentFirst"),
    ("ScaleUp", "REPEATS = FALSE", "AmbiguousRepeats"),
    ("ScaleUp", "BUMPWAIT = FALSE; MaxAct = 1", "OneRun"),
    ("ScaleUp", "NODEFENCE = FALSE; MaxAct = 1; MaxAttempt = 0", "AcceptedKept"),
    ("ScaleUp", "CLOSEFIRST = FALSE; MaxAct = 1; MaxAttempt = 0", "AcceptedKept"),
    ("ScaleUp", "CLEANFIRST = FALSE", "CleanBeforeClear"),
    ("ScaleUp", "SEQRULE = FALSE", "CollectorSafe"),
    ("ScaleUp", "LOOKHELD = FALSE; MaxAttempt = 0", "MaxKept"),
    ("ScaleDown", "FENCED = FALSE", "FencedWrite"),
    ("ScaleDown", "ONEACTION = FALSE; FENCED = FALSE", "OneAction"),
    ("ScaleDown", "PLANFIRST = FALSE", "PlanFirst"),
    ("ScaleDown", "NODEFENCE = FALSE", "SafeTerminate"),
    ("ScaleDown", "STAMPFIRST = FALSE", "SafeTerminate"),
    ("ScaleDown", "COMMITFIRST = FALSE", "PlanFirst"),
    ("ScaleDownBatch", "IRREVOCABLE = FALSE", "CommitIrrevocable"),
    ("ScaleDownSpot", "SPOTSTAYS = FALSE", "SpotIndependent"),
    ("ScaleDownLive", "UNCORDON = FALSE; SWEEPS = FALSE", "NoLeakedCordon"),
    ("ScaleDownLive", "SWEEPS = FALSE", "NoLeakedCordon"),
    ("Spot", "CORDONFIRST = FALSE", "SafeTerminate"),
    ("Spot", "PLANFENCED = FALSE", "MaxKept"),
    ("Spot", "STAGECAS = FALSE; MaxFence = 2", "OnlyOnward"),
    ("Spot", "NODEFENCE = FALSE; MaxAttempt = 0", "AcceptedKept"),
    ("Spot", "GIVEUPFIRST = FALSE; MaxFence = 2; MaxAttempt = 0", "AcceptedKept"),
    ("Spot", "CLOSELAST = FALSE", "NoLostReplacement"),
    ("Spot", "LOOKHELD = FALSE", "MaxKept"),
    ("SpotHints", "HINTWAITS = FALSE", "RebalanceMild"),
    ("Opening", "STORED = FALSE", "StaysOrGoes"),
    ("Opening", "PHASECAS = FALSE", "StaysOrGoes"),
    ("Opening", "NOTICECAS = FALSE", "SafeTerminate"),
    ("Opening", "MARKED = FALSE", "SafeTerminate"),
    ("Opening", "VERIFIED = FALSE; Procs = {p1, p2, p3}; MaxDeaths = 0", "SafeTerminate"),
    ("Opening", "NODEFIRST = FALSE", "SafeTerminate"),
    ("OpeningLive", "SWEEPS = FALSE", "NoLeakedCordon"),
]


def model_of(config: str) -> Path:
    return next(path for path in sorted(MODELS.glob("*.tla")) if config.startswith(path.stem))


def verdict(config: str, text: str, scratch: Path) -> Verdict:
    """TLC's result for the model with this configuration."""
    changed = scratch / f"{config}.cfg"
    changed.write_text(text)
    try:
        return tlc.checked(model_of(config), changed, scratch / "states")
    except tlc.Unavailable as error:
        skip_or_fail(str(error))


def mutated(text: str, change: str, prop: str) -> str:
    """The configuration with other constants, and with only this property."""
    for line in change.split("; "):
        name = line.split()[0]
        text, found = re.subn(rf"^ *{name} = .*$", line, text, flags=re.MULTILINE)
        assert found == 1, f"{name} is not a constant of the model"
    kept = re.sub(r"^(INVARIANTS|PROPERTIES) .*\n", "", text, flags=re.MULTILINE)
    kind = next(line.split()[0] for line in text.splitlines() if prop in line.split())
    return f"{kept}{kind} {prop}\n"


def source(config: str) -> str:
    return (MODELS / f"{config}.cfg").read_text(encoding="utf-8")


@pytest.mark.real
@pytest.mark.parametrize(
    "config", [config if config == QUICK else pytest.param(config, marks=pytest.mark.slow) for config in CONFIGS]
)
def test_the_model_holds_in_every_state(config: str, tmp_path: Path) -> None:
    """Every interleaving, death, pause and lost response within the bounds of the configuration."""
    found = verdict(config, source(config), tmp_path)
    assert found.broken == "", found.output[-6000:]
    assert found.states > 1000  # a model in which nothing happens holds too


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize(("config", "change", "prop"), MUTANTS, ids=lambda text: "-".join(text.split()))
def test_a_mutant_of_the_model_is_caught(config: str, change: str, prop: str, tmp_path: Path) -> None:
    found = verdict(config, mutated(source(config), change, prop), tmp_path)
    assert found.broken in (prop, IN_THE_END), f"{change} was not noticed by {prop} in {found.states} states"


def test_every_flag_of_a_model_has_its_mutant() -> None:
    """So none can be dropped silently, and none is without effect."""
    flags = {
        (model_of(config).stem, flag)
        for config in CONFIGS
        for flag in re.findall(r"^ +(\w+) = TRUE$", source(config), flags=re.MULTILINE)
    }
    changed = {(model_of(config).stem, line.split()[0]) for config, change, _ in MUTANTS for line in change.split("; ")}
    assert flags - changed == ENVIRONMENT
