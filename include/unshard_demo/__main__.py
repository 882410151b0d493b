"""`python -m unshard_demo run|up|down`: what `make demo`, `make demo-up` and `make demo-down` call."""

import argparse
import signal
import sys
from pathlib import Path

from unshard_demo import processes, shop, stage, story, tidb

FOLDER = Path(".demo")


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; 0 when target and union are equal, 1 when anything is off."""
    options = _parser().parse_args(arguments)
    folder = options.folder.resolve()
    if options.command == "down":
        print(f"stopped {stage.down(folder)} programs; files are left in {folder}")
        return 0
    if options.target == "tidb" and not tidb.is_built():
        story.say(tidb.NOT_BUILT)
        return 1
    try:
        if options.command == "up":
            return up(folder, options)
        with stage.standing(folder, options.rows, options.target) as standing:
            story.say(where_to_look(standing))
            print(story.summary(story.perform(standing, options.changes, options.rows)))
        story.say(f"  nothing is left running; logs are in {folder}\n  `make demo-up` leaves everything running")
        return 0
    except story.DemoFailed as error:
        story.say(f"the demo failed: {error}\n  logs are in {folder}")
        return 1
    except KeyboardInterrupt:
        story.say("interrupted; everything is stopped")
        return 130


def up(folder: Path, options: argparse.Namespace) -> int:
    """Play the story and leave everything running."""
    standing = stage.set_up(folder, options.rows, options.target)
    try:
        print(story.summary(story.perform(standing, options.changes, options.rows)))
    except BaseException:
        stage.down(folder)
        raise
    processes.leave_running()
    servers = {**standing.sources, "target": standing.target}
    for name, server in servers.items():
        story.say(f"  {name}: mariadb --host=127.0.0.1 --port={server.port} --user=admin --password={server.password}")
    story.say(where_to_look(standing) + "\n  make demo-down             stops it all")
    return 0


def where_to_look(standing: stage.Stage) -> str:
    """Say where the running demo can be watched."""
    airflow = standing.airflow
    ((version,),) = standing.target.run("SELECT VERSION()")
    return (
        f"the stage is set: two sources, a target ({version}), Spark and Airflow on 127.0.0.1\n"
        f"  {airflow.url}     user admin, password {airflow.password}\n"
        f"  DAGs {story.FULL}, {story.SYNC}, {story.DDL}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m unshard_demo", description=__doc__)
    parser.add_argument("command", choices=("run", "up", "down"))
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where everything lives (default: .demo)")
    parser.add_argument("--target", choices=stage.TARGETS, default="mariadb", help="make of the target server")
    parser.add_argument("--rows", type=int, default=shop.ROWS_PER_SHARD, help="rows per shard (default: %(default)s)")
    parser.add_argument("--changes", type=float, default=150.0, help="changes a second (default: %(default)s)")
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
