"""Servers and other programs end with the process that started them, for every way in which it ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from unshard_demo import processes, programguard
from unshard_demo.processes import LEAVE, Program

pytestmark = pytest.mark.integration
SECONDS = 900
STARTER = """
import dataclasses, json, signal, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unshard_demo import servers

with ThreadPoolExecutor(1) as pool:
    server = pool.submit(servers.start_server, Path(sys.argv[1])).result()
server.run("CREATE DATABASE there")  # the thread that has started it is gone
print(json.dumps(dataclasses.asdict(server.program)), flush=True)
signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_ends_with_the_process_that_has_started_it(server_folder: Path, unique: str, number: int) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", STARTER, str(server_folder / unique)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        program = Program(**json.loads(process.stdout.readline()))
        assert program.is_running
        process.send_signal(number)
    try:
        processes.await_true(lambda: not program.members(), SECONDS, [], "the server to end")
    finally:
        processes.kill(program)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = processes.start_program("tail", ["tail", "-f", "/dev/null"], os.environ, tmp_path / "log")
    yield made
    processes.kill(made)


def test_what_is_left_running_goes_on(program: Program) -> None:
    line = json.dumps(asdict(program))
    programguard.main([line, LEAVE + "\n"])
    assert program.is_running
    programguard.main([line])
    assert not program.members()
