"""moto's server with a bucket that an older system has filled: `python -m tests.servers.moto_filled PORT BUCKET JOBS`.

Filled within the server's own process, since a hundred thousand requests would take longer than what is tested.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.servers import processes
from tests.support.migration_world import life, statuses

ACCOUNT = "123456789012"  # moto's


def start(log_dir: Path, bucket: str, jobs: int) -> processes.RunningServer:
    def command(port: int) -> list[str]:
        return [sys.executable, "-m", "tests.servers.moto_filled", str(port), bucket, str(jobs)]

    return processes.start("moto", command, log_dir, limit_seconds=120 + jobs / 200)


def webhooks(job: int) -> list[tuple[str, bytes]]:
    """Status and body: most jobs have ended long ago and kept only that, every twentieth has its whole life."""
    deployment = 10_000_000 + job if job % 100 == 0 else None
    whole = statuses(life(job, failed=job % 7 == 0, deployment=deployment))
    return [(status, sent.body) for status, sent in (whole if job % 20 == 0 else whole[-1:])]


def main(port: int, bucket: str, jobs: int) -> None:
    from moto.s3.models import s3_backends
    from moto.server import main as serve

    backend = s3_backends[ACCOUNT]["aws"]
    backend.create_bucket(bucket, "eu-west-1")
    for job in range(1, jobs + 1):
        for status, body in webhooks(job):
            backend.put_object(bucket, f"webhooks/1/{job}/{status}.json", body)
    backend.put_object(bucket, "runners/AROAEXAMPLE:i-0123456789abcdef0/runner-config.json", b'{"jit": "secret"}')
    serve(["-H", processes.HOST, "-p", str(port)])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
