"""Decoders of types, created by many threads at once."""

import subprocess
import sys

import msgspec
import pytest

from holdfast.kernel import typed_json

# In a separate process: created by msgspec alone, the decoders of such structs crash it within a few rounds.
MANY_AT_ONCE = """
import sys, threading
from msgspec import Struct, defstruct
from holdfast.kernel.typed_json import decoder

sys.setswitchinterval(1e-6)

def round():
    inner = defstruct("Inner", [("x", int | None, None), ("y", list[str] | None, None)])
    middle = defstruct("Middle", [("a", inner | None, None), ("c", list[inner] | None, None)])
    outer = defstruct("Outer", [("b", middle | None, None), ("a", inner | None, None)])
    ready = threading.Barrier(8)

    def decode():
        ready.wait()
        assert decoder(outer).decode(b'{"a": {"x": 2}}').a.x == 2

    threads = [threading.Thread(target=decode) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()

for _ in range(200): round()
"""


class Point(msgspec.Struct):
    x: int


def test_many_threads_may_request_the_same_type_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", MANY_AT_ONCE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_type_has_one_decoder() -> None:
    assert typed_json.decoder(Point) is typed_json.decoder(Point)
    assert typed_json.decoded(b'{"x": 1}', Point) == Point(1)
    with pytest.raises(msgspec.ValidationError):
        typed_json.decoded(b'{"x": "1"}', Point)
