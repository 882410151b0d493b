"""`python -m unshard_demo.programguard`: ends programs when the process that started them ends, for whatever reason.

It reads the names of started programs from that process, line by line. At the end of its input the process has ended or
was killed, so it ends all programs that still run. Linux can also signal children when their parent dies, but it does
so when the *thread* that started them ends.
"""

import json
import signal
import sys
from collections.abc import Iterable

from unshard_demo import processes
from unshard_demo.processes import LEAVE, Program


def main(lines: Iterable[str]) -> None:
    """End the programs in the lines, last started first; do nothing if the last line tells to leave them running."""
    programs: list[Program] = []
    for line in lines:
        if line.strip() == LEAVE:
            return
        programs.append(Program(**json.loads(line)))
    for program in reversed(programs):
        processes.kill(program)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # such a signal to the whole terminal is for the others
    main(sys.stdin)
