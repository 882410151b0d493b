"""`python -m unshard_demo.guard`: ends programs when the process that has started them is gone, however it ended.

It reads from that process, line by line, what it starts; when nothing more can come, because that has ended or was
killed, it ends all that still runs. A signal to children at their parent's death would do the same, but Linux sends it
when the *thread* ends that has started them.
"""

import json
import signal
import sys
from collections.abc import Iterable

from unshard_demo import processes
from unshard_demo.processes import LEAVE, Program


def main(lines: Iterable[str]) -> None:
    """End what the lines name, the last first; nothing if they end with the word that all shall go on."""
    programs: list[Program] = []
    for line in lines:
        if line.strip() == LEAVE:
            return
        programs.append(Program(**json.loads(line)))
    for program in reversed(programs):
        processes.kill(program)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whoever ends all processes of a terminal or a job means the others
    main(sys.stdin)
