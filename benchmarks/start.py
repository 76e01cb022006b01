"""How long the second start takes until a question is answered: python benchmarks/start.py

Starts `python app.py` as `make run` does, its sources compiled, and asks for the page until it is served, which is once
the engine is loaded. On a busy machine compare the processor's seconds.
"""

from __future__ import annotations

import argparse
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    subprocess.run([sys.executable, "-m", "compileall", "-q", "app", "kev_engine"], cwd=ROOT, check=True)
    for _ in range(runs):
        wall, cpu = start_once()
        print(f"ready after {wall:.1f} s on the wall, {cpu:.1f} s of the processor", flush=True)


def start_once() -> tuple[float, float]:
    """Seconds until the page of a fresh process is served, on the wall and of the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    port = free_port()
    started = time.perf_counter()
    app = subprocess.Popen([sys.executable, "app.py", "--port", str(port)], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        while not is_served(port):
            if app.poll() is not None:
                raise SystemExit(f"app.py ended with {app.returncode}")
            time.sleep(0.05)
        wall = time.perf_counter() - started
    finally:
        app.terminate()
        app.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def is_served(port: int) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
        return bool(answer.status == 200)
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
