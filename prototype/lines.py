"""What one group would save: `python -m prototype.lines`. Lines of today are counted, those after are estimates.

An estimate names what goes. Modules of a shard DDL that are not listed stay as they are (`STAY`).
"""

from pathlib import Path

ROOT = Path(__file__).parents[1]
CHANGE: dict[str, tuple[int, str]] = {
    # module: lines after, what goes or comes
    "include/unshard/core/ddl/waysout.py": (0, "the simulation; a way is tried once on values (group.unlock)"),
    "include/unshard/core/ddl/columnnames.py": (0, "own names: ids"),
    "include/unshard/core/ddl/lineage.py": (75, "filled_names; the table of cases"),
    "include/unshard/core/ddl/lock.py": (270, "stay: record, stages, id, script; go: decide, resolution, skips, ways"),
    "include/unshard/core/ddl/queue.py": (200, "admission, agreement, unnamed shards"),
    "include/unshard/units/ddl/coordinate.py": (110, "stay: plan, whole tables; the rest is joining.py"),
    "include/unshard/units/ddl/scene.py": (150, "one view of a change: fields of LockFacts that differences.py lacks"),
    "include/unshard/units/ddl/execute.py": (330, "intended_entry, execute_ddl, own names"),
    "include/unshard/units/ddl/joining.py": (610, "waits, commands; goes: locks of the other mode"),
    "include/unshard/units/ddl/matrix.py": (95, "the matrix of queues"),
    "include/unshard/units/ddl/reconciling.py": (290, "own names"),
    "include/unshard/units/ddl/ddleffects.py": (610, "own names"),
    "include/unshard/core/join/planning.py": (640, "locks resolved in between, barriers, adopted names"),
    "include/unshard/core/join/states.py": (265, "waiting, undecided and failed changes come"),
    "include/unshard/adapters/meta/lockrecords.py": (150, "stay: commands' record, history, whole tables"),
    "include/unshard/adapters/meta/pendingskips.py": (0, "the store of standing apart is in joinrecords.py"),
    "include/unshard/adapters/meta/joinrecords.py": (500, "stands apart, exempted, forced, statements"),
    "include/unshard/adapters/meta/commandrecords.py": (350, "commands are stored with the queue entry"),
    "include/unshard/adapters/meta/shardrecords.py": (520, "missing DDL, own names"),
    "include/unshard/adapters/meta/tables.py": (625, "ddl_lock, ddl_lock_member; columns in join_change"),
    "include/unshard/operate/issuing.py": (310, "effects of a command are those of the operation"),
    "include/unshard/operate/advice.py": (300, "two trees of advice become one"),
    "include/unshard/operate/documents.py": (195, "LockDocument and DifferenceDocument become one"),
    "include/unshard/units/rows/conversion.py": (400, "places by names and by executed DDL"),
    "include/unshard/core/validate/comparedrows.py": (105, "by names"),
    "include/unshard/units/validate/evidence.py": (240, "by names"),
    "include/unshard/units/full/targets.py": (265, "pending skips of a source that comes later"),
    "include/unshard/units/task/optimistic.py": (55, "one way to follow"),
    "plugins/unshard_airflow/locktasks.py": (120, "one DAG for each open change"),
    "plugins/unshard_airflow/differencetasks.py": (40, "the same"),
    "plugins/unshard_airflow/watch.py": (290, "one trigger"),
    "plugins/unshard_airflow/follow.py": (325, "one way to start runs"),
    "plugins/unshard_airflow/page/service.py": (365, "one list"),
    "plugins/unshard_airflow/page/pages.py": (440, "one list"),
    "plugins/unshard_airflow/graph.py": (286, "one DAG less"),
}
NEW = "include/unshard/core/join (policies, subjects, standing apart, operations), from prototype/group.py"
SHELL = 60
"""Of prototype/world.py, what no module of today does: answers, resuming a command, a shard that comes late."""
STAY = (
    "core/ddl/statement.py, effects.py, reconcile.py, hiddenstructure.py, onetoone.py, online.py, steps.py, replacement.py",
    "core/ddl/sessioneffects.py, statementcommands.py, schemadefaults.py, foreignkeyclauses.py, eventnames.py, names.py",
    "core/join/group.py, decision.py, difference.py, jointables.py, joined.py, places.py; units/ddl/differences.py",
)
WORDS = {
    "queue": "queue",
    "held rows": "held rows",
    "column reload": "column reload",
    "DDL lock": "open change",
    "open difference": "open change",
    "fingerprint": "fingerprint",
    "owner": "",
    "undecided": "undecided",
    "resolved": "accepted",
    "pending skip": "exempted",
    "mismatched shard": "",
    "command": "command",
    "joined target": "",
    "column id": "column id",
    "fill": "fill",
    "barrier": "",
}
"""The words of the glossary about shard DDL, and those that one group needs in their place."""
MIGRATION = 150
"""Open locks and pending skips of existing tasks become a group; it goes again with the next version."""


def main() -> None:
    total = 0
    for module, (after, why) in CHANGE.items():
        now = len((ROOT / module).read_text().splitlines())
        total += after - now
        print(f"{module:55} {now:5} {after:5} {after - now:+6}  {why}")
    core = len((ROOT / "prototype/group.py").read_text().splitlines())
    print(f"{NEW}: +{core}")
    print(f"new parts of the shell: +{SHELL}, migration of existing tasks: +{MIGRATION}")
    print(f"saved: {-(total + core + SHELL)} lines, {-(total + core + SHELL + MIGRATION)} until the migration goes")
    print(f"saved if the new core grows by a quarter when it is built: {-(total + core * 5 // 4 + SHELL)}")
    words = [
        line.split("**")[1] for line in (ROOT / "docs/glossary.md").read_text().splitlines() if line.startswith("| **")
    ]
    assert {*WORDS} <= {*words}
    gone = [f"{word}{f' -> {to}' if to else ''}" for word, to in WORDS.items() if to != word]
    left = {to for to in WORDS.values() if to}
    print(
        f"glossary: {len(words)} words, {len(WORDS)} about shard DDL, {len(left)} of them afterwards: -{len(WORDS) - len(left)}"
    )
    print(f"  {', '.join(gone)}")


if __name__ == "__main__":
    main()
