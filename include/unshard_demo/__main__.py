"""`python -m unshard_demo run|up|down`, the commands of `make demo`, `make demo-up` and `make demo-down`."""

import argparse
import json
import signal
import sys
from pathlib import Path

from unshard_demo import processes, servers, shop, stage, story
from unshard_demo.story import DemoFailed, say

FOLDER = Path(".demo")


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; returns 0 if the target equals the union of the shards, 1 after any failure."""
    options = _parser().parse_args(arguments)
    folder = options.folder.resolve()
    if options.command == "down":
        print(f"stopped {stage.down(folder)} programs; files are left in {folder}")
        return 0
    if options.target == "tidb" and not servers.is_tidb_built():
        say(servers.TIDB_NOT_BUILT)
        return 1
    try:
        if options.command == "up":
            return up(folder, options)
        with stage.running_stage(folder, _stage_options(options)) as demo:
            say(how_to_watch(demo))
            print(story.summary(story.perform(demo, options.changes, options.rows)))
        say(f"  all programs are stopped; logs are in {folder}\n  `make demo-up` leaves everything running")
        return 0
    except DemoFailed as error:
        say(f"the demo failed: {error}\n  logs are in {folder}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; all programs are stopped")
        return 130


def up(folder: Path, options: argparse.Namespace) -> int:
    """Run the demo and leave everything running."""
    demo = stage.set_up(folder, _stage_options(options))
    try:
        print(story.summary(story.perform(demo, options.changes, options.rows)))
    except BaseException:
        stage.down(folder)
        raise
    processes.leave_running()
    named = {**demo.sources, "target": demo.target}
    for name, server in named.items():
        say(f"  {name}: mariadb --host=127.0.0.1 --port={server.port} --user=admin --password={server.password}")
    say(how_to_watch(demo) + "\n  make demo-down             stops everything")
    return 0


def how_to_watch(demo: stage.DemoStage) -> str:
    """Return the addresses and commands to watch the running demo."""
    airflow = demo.airflow
    ((version,),) = demo.target.run("SELECT VERSION()")
    return (
        f"running: two sources, a target ({version}), Spark and Airflow on 127.0.0.1\n"
        f"  {airflow.url}     user admin, password {airflow.password}\n"
        f"  DAGs {', '.join(story.dags(demo.task))}"
    )


def _stage_options(options: argparse.Namespace) -> stage.StageOptions:
    settings = json.loads(options.airflow.read_text()) if options.airflow else {}
    return stage.StageOptions(options.rows, options.target, options.mode, settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m unshard_demo", description=__doc__)
    parser.add_argument("command", choices=("run", "up", "down"))
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of all files (default: .demo)")
    parser.add_argument("--target", choices=stage.TARGETS, default="mariadb", help="product of the target server")
    parser.add_argument("--mode", choices=stage.MODES, default=stage.MODES[0], help="shard-mode (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=shop.ROWS_PER_SHARD, help="rows per shard (default: %(default)s)")
    parser.add_argument("--changes", type=float, default=150.0, help="changes a second (default: %(default)s)")
    parser.add_argument("--airflow", type=Path, help="JSON file with further environment variables of Airflow")
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
