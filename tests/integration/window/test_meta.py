"""The meta tables on a real server: migrations, windows with epochs, shards, locks."""

import contextlib
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import inspect, text

from unshard.adapters.meta import Meta, tables, windowrecords
from unshard.adapters.meta.database import MIGRATIONS, MetaDatabase, _engine
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.ddl.lock import Outcome, SkipResolution
from unshard.core.ddl.queue import Admission, EntryState, HeldFile, QueueEntry, WholeChange
from unshard.core.full.progress import NOTHING_YET
from unshard.core.model import Column, Index, Location, Shard, TableId, TableSchema
from unshard.core.relay.segment import Statement
from unshard.core.task.state import Chunk, ChunkState, DumpedFile, PendingWork, Phase, SyncState
from unshard.core.window.plan import Border, Disposition, Plan, Read, Release, Rename, StructureChange
from unshard.errors.locks import TargetIsReplaced
from unshard.errors.meta import (
    FencedOut,
    MetaMissing,
    MetaTooNew,
    PhaseFellBack,
    StructureMissing,
    UnknownSource,
    WindowMismatch,
)
from unshard.errors.source import ServerUnreachable
from unshard_demo.processes import await_true
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

TARGET = TableId("shop", "orders")
SHARD = Shard("s1", TableId("shop_1", "orders_1"))
OTHER = Shard("s2", TableId("shop_1", "orders_1"))
P0 = Location("mysql-bin.000001", 4)
P1 = Location("mysql-bin.000001", 100)
P2 = Location("mysql-bin.000001", 200)
MINE = "task = 'orders', source = 's1'"
ALTER = Statement("ALTER TABLE orders_1 ADD c INT", "shop_1", 0, "utf8mb4", 1_700_000_000, "SYSTEM")


def structure(*names: str) -> TableSchema:
    columns = tuple(Column(name, "int", "int(11)", False, None, None, None, "") for name in names)
    return TableSchema(columns, (Index("PRIMARY", names[:1], True),), f"CREATE TABLE `t` ({names})")


BEFORE, AFTER = structure("id"), structure("id", "c")


def entry(shard: Shard = SHARD, seq: int = 1) -> QueueEntry:
    return QueueEntry(
        shard,
        TARGET,
        seq,
        P1,
        ALTER,
        "ALTER TABLE `shop`.`orders` ADD c INT",
        "ALTER TABLE ADD C INT",
        BEFORE.digest,
        AFTER.digest,
    )


def plan(number: int = 1, begins: Location = P0, ends: Location = P1, **parts: object) -> Plan:
    reads = (Read("seg", "mysql-bin.000001", ((4, 100),), (Disposition(SHARD, TARGET, BEFORE.digest, None, None),)),)
    body: dict[str, object] = {
        "safe": False,
        "releases": (),
        "reads": reads,
        "queued": (),
        "structures": (),
        "gtid": "0-1-9",
        "last_time": 17,
    }
    return Plan("s1", number, begins, ends, **(body | parts))  # type: ignore[arg-type]


@pytest.fixture
def meta(target: MariaDb, unique: str) -> Iterator[Meta]:
    meta = Meta(target.server, unique, "orders")
    meta.migrate()
    yield meta
    meta.close()
    target.run(f"DROP DATABASE {unique}")


@pytest.fixture
def synced(meta: Meta) -> Meta:
    """Two sources in sync, one shard each."""
    for shard in (SHARD, OTHER):
        meta.sources.add(shard.source, "uuid", "mariadb")
        meta.structures.put(BEFORE)
        meta.structures.put(AFTER)
        meta.structures.record(shard, TARGET, P0, BEFORE.digest)
        meta.checkpoints.start(shard.source, P0, "0-1-1")
    return meta


def fence(target: MariaDb, meta: Meta, source: str = "s1") -> list[tuple[object, ...]]:
    return target.run(f"SELECT `window`, epoch FROM {meta.schema}.fence WHERE task = 'orders' AND source = '{source}'")


def connection_of(database: MetaDatabase) -> int:
    with database.transaction() as db:
        return int(db.connection.scalar(text("SELECT CONNECTION_ID()")))


def test_a_connection_is_kept_replaced_when_it_is_gone_and_not_shared_with_a_fork(meta: Meta, target: MariaDb) -> None:
    database = MetaDatabase(target.server, meta.schema, "orders")
    first = connection_of(database)
    assert connection_of(database) == first
    fork = multiprocessing.get_context("fork")
    said = fork.SimpleQueue()
    child = fork.Process(target=lambda: said.put(connection_of(database)))
    child.start()
    forked = said.get()
    child.join()
    assert forked != first
    assert connection_of(database) == first
    target.run(f"KILL {first}")
    assert connection_of(database) not in (first, forked)
    database.close()


def test_tables_are_what_the_migrations_make(meta: Meta, target: MariaDb) -> None:
    inspector, schema = inspect(_engine(target.server, None)), meta.schema
    names = inspector.get_table_names(schema)
    made = {name: {c["name"]: c for c in inspector.get_columns(name, schema)} for name in names}
    assert made.keys() == tables.metadata.tables.keys()
    for name, table in tables.metadata.tables.items():
        assert list(made[name]) == [column.name for column in table.columns], name
        assert inspector.get_pk_constraint(name, schema)["constrained_columns"] == [
            c.name for c in table.primary_key
        ], name
        for column in table.columns:
            found = made[name][column.name]["type"]
            assert found._type_affinity is column.type._type_affinity, (name, column.name)
            assert getattr(found, "length", None) == getattr(column.type, "length", None), (name, column.name)
            assert made[name][column.name]["nullable"] == column.nullable, (name, column.name)
            assert made[name][column.name]["comment"] == column.comment, (name, column.name)
        assert inspector.get_table_comment(name, schema)["text"] == table.comment
        indexes = {each["name"]: (each["column_names"], each["unique"]) for each in inspector.get_indexes(name, schema)}
        assert indexes == {each.name: ([c.name for c in each.columns], bool(each.unique)) for each in table.indexes}


def test_migrating_twice_and_from_many_threads(target: MariaDb, unique: str) -> None:
    metas = [Meta(target.server, unique, f"task {number}") for number in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(Meta.migrate, metas))
    metas[0].migrate()
    assert target.run(f"SELECT number FROM {unique}.migration") == [(step.number,) for step in MIGRATIONS]
    target.run(f"DROP DATABASE {unique}")


def test_migration_goes_on_after_a_death_in_the_middle(target: MariaDb, unique: str) -> None:
    target.run(f"CREATE DATABASE {unique}", f"USE {unique}", *MIGRATIONS[0].statements[:3])
    meta = Meta(target.server, unique, "orders")
    meta.migrate()
    assert meta.sources.all() == ()
    target.run(f"DROP DATABASE {unique}")


def test_a_reader_waits_for_the_process_that_creates_the_tables(meta: Meta, target: MariaDb) -> None:
    lock = f"SELECT GET_LOCK('unshard migrate {meta.schema}', 0)"
    waiting = f"SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT GET_LOCK(%{meta.schema}%'"
    with contextlib.closing(target.connect()) as creating, ThreadPoolExecutor(1) as pool:
        with creating.cursor() as cursor:
            cursor.execute(lock)
            cursor.execute(f"DELETE FROM {meta.schema}.migration WHERE number > 0")
            creating.commit()
            reading = pool.submit(meta.refuse_other_version)
            await_true(
                lambda: reading.done() or target.run(waiting) == [(1,)], 900, [target.program], "the reader waits"
            )
            rows = ", ".join(f"({step.number}, '', UTC_TIMESTAMP())" for step in MIGRATIONS)
            cursor.execute(f"INSERT INTO {meta.schema}.migration VALUES {rows}")
            creating.commit()
            cursor.execute(lock.replace("GET_LOCK", "RELEASE_LOCK").replace(", 0)", ")"))
        assert reading.result(900) is None


def test_newer_schema_is_refused(meta: Meta, target: MariaDb) -> None:
    target.run(f"INSERT INTO {meta.schema}.migration VALUES (99, 'from the future', UTC_TIMESTAMP())")
    with pytest.raises(MetaTooNew, match="version 99"):
        meta.migrate()


def test_missing_schema_and_unreachable_server(target: MariaDb, unique: str) -> None:
    with pytest.raises(MetaMissing, match=unique):
        Meta(target.server, unique, "orders").sources.all()
    with pytest.raises(ServerUnreachable) as error:
        Meta(replace(target.server, port=1), unique, "orders").migrate()
    assert target.password not in str(error.value)


def test_migration_numbers_have_no_gap() -> None:
    assert [step.number for step in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


def test_source_moves_forward_only(meta: Meta) -> None:
    assert meta.sources.get("s1") is None
    with pytest.raises(UnknownSource):
        meta.sources.set_phase("s1", Phase.SNAPSHOT)
    assert meta.sources.add("s1", "uuid", "mariadb").phase is Phase.NEW
    meta.sources.set_phase("s1", Phase.SNAPSHOT, snapshot=P0, snapshot_gtid="0-1-1")
    state = meta.sources.set_phase("s1", Phase.DUMPED, dump_end=P2)
    assert (state.snapshot, state.dump_end, state.snapshot_gtid) == (P0, P2, "0-1-1")
    assert meta.sources.add("s1", "another", "mysql") == state
    with pytest.raises(PhaseFellBack):
        meta.sources.set_phase("s1", Phase.NEW)
    assert meta.sources.all() == (state,)


def test_tasks_do_not_see_each_other(synced: Meta, target: MariaDb) -> None:
    other = Meta(target.server, synced.schema, "other")
    assert other.sources.all() == () and other.structures.shards() == () and other.checkpoints.get("s1") is None
    with pytest.raises(StructureMissing):
        other.structures.get({BEFORE.digest})


def test_checkpoint_once_started_stays(synced: Meta) -> None:
    first = synced.checkpoints.start("s1", P2, "0-1-5")
    assert (first.location, first.gtid, first.window) == (P0, "0-1-1", 0)
    assert synced.sources.all()[0].phase is Phase.SYNC


def test_structures_come_back_equal(synced: Meta) -> None:
    assert synced.structures.get({BEFORE.digest, AFTER.digest}) == {BEFORE.digest: BEFORE, AFTER.digest: AFTER}
    synced.structures.record(SHARD, TARGET, P0, BEFORE.digest)
    assert [change.structure for change in synced.structures.history(SHARD)] == [BEFORE.digest]


def test_chunks_keep_their_progress(synced: Meta) -> None:
    chunks = [Chunk(0, SHARD, TARGET, 1, None, [5, "é"]), Chunk(0, SHARD, TARGET, 2, [5, "é"], None)]
    first, second = synced.chunks.plan("s1", chunks)
    assert (first.upper, second.lower, second.upper, second.state) == ([5, "é"], [5, "é"], None, ChunkState.PLANNED)
    assert synced.chunks.dumped(first.id, [DumpedFile("x/1.parquet", 7, 70)])
    assert not synced.chunks.dumped(first.id, [DumpedFile("x/again.parquet", 7, 70)])
    done, _ = synced.chunks.plan("s1", chunks)
    assert (done.id, done.state) == (first.id, ChunkState.DUMPED)
    assert (done.path, done.rows, done.bytes) == ("x/1.parquet", 7, 70)
    dump, load = synced.chunks.progress("s1")
    assert (dump.chunks, dump.done, dump.rows, dump.bytes, dump.percent) == (2, 1, 7, 70, 50)
    assert (load.chunks, load.done, load.rows, load.percent) == (2, 0, 0, 0)
    assert synced.chunks.progress("s2") == (NOTHING_YET, NOTHING_YET)
    synced.chunks.clear("s1")
    assert synced.chunks.of("s1") == ()


def test_window_is_begun_again_with_its_own_plan_and_a_new_epoch(synced: Meta, target: MariaDb) -> None:
    first = synced.windows.begin("s1", plan())
    again = synced.windows.begin("s1", plan(ends=P2))
    assert again.plan == first.plan == synced.windows.open("s1")
    assert again.epoch == first.epoch + 1
    assert fence(target, synced) == [(0, again.epoch)]


def test_plan_is_replaced_only_while_no_target_has_rows_of_it(synced: Meta, target: MariaDb) -> None:
    zombie, begun = synced.windows.begin("s1", plan()), synced.windows.begin("s1", plan())
    other = plan(queued=(entry(),))
    with pytest.raises(FencedOut):
        synced.windows.plan_again(zombie, other)
    assert synced.windows.open("s1") == plan()
    assert synced.windows.plan_again(begun, other) and synced.windows.open("s1") == other
    with pytest.raises(FencedOut):
        synced.windows.commit(begun, (), 0)
    begun = synced.windows.begin("s1", other)
    assert begun.plan == other and fence(target, synced) == [(0, begun.epoch)]
    target.run(f"UPDATE {synced.schema}.fence SET `window` = 1")
    assert not synced.windows.plan_again(begun, plan()) and synced.windows.open("s1") == other


def with_sections() -> Plan:
    """Return a plan of two sections; the target has the first one when its fence has window 1."""
    read = plan().reads[0]
    return plan(ends=P2, reads=(read, replace(read, ranges=((100, 200),))), borders=(Border(1, P1, "0-1-5", 11),))


def test_a_window_ends_before_a_section_of_which_no_target_has_rows(synced: Meta, target: MariaDb) -> None:
    zombie = synced.windows.begin("s1", with_sections())
    begun = synced.windows.begin("s1", with_sections())
    first = begun.plan.until(1)
    with pytest.raises(FencedOut):
        synced.windows.shorten(zombie, first)
    target.run(f"UPDATE {synced.schema}.fence SET `window` = 1")
    step = (
        f"INSERT INTO {synced.schema}.fence_step VALUES ('orders', 's1', 'shop', 'orders', 2, 0, 'all', NULL, 'id', 0)"
    )
    target.run(step)
    shorter = synced.windows.shorten(begun, first)
    assert shorter is not None and synced.windows.open("s1") == shorter.plan == first
    assert fence(target, synced) == [(1, shorter.epoch)] and shorter.epoch == begun.epoch + 1, "no writer goes on"
    assert target.run(f"SELECT * FROM {synced.schema}.fence_step") == [], "the next window has this number"
    with pytest.raises(FencedOut):
        synced.windows.commit(begun, (), 5)
    synced.windows.commit(shorter, (), 5)
    state = synced.windows.sync_state("s1")
    assert (state.checkpoint, state.window, state.gtid) == (P1, 1, "0-1-5")


@pytest.mark.parametrize("done", ["its fence", "a step"])
def test_a_window_does_not_end_before_a_section_of_which_a_target_has_rows(synced: Meta, target: MariaDb, done) -> None:
    begun = synced.windows.begin("s1", with_sections())
    target.run(f"UPDATE {synced.schema}.fence SET `window` = {1 + (done == 'its fence')}")
    if done == "a step":
        values = "'orders', 's1', 'shop', 'orders', 2, 0, 'all', NULL, 'id', 1"
        target.run(f"INSERT INTO {synced.schema}.fence_step VALUES ({values})")
    assert synced.windows.shorten(begun, begun.plan.until(1)) is None
    assert synced.windows.open("s1") == with_sections()
    again = synced.windows.begin("s1", plan())
    synced.windows.commit(again, (), 5)
    state = synced.windows.sync_state("s1")
    assert (state.checkpoint, state.window) == (P2, 2), "the number of its last section"


def test_commit_of_a_taken_over_window_writes_nothing(synced: Meta) -> None:
    zombie = synced.windows.begin("s1", plan(queued=(entry(),)))
    mine = synced.windows.begin("s1", plan())
    with pytest.raises(FencedOut):
        synced.windows.commit(zombie, (), 5)
    assert synced.structures.shards("s1")[0].queue == () and synced.checkpoints.get("s1").location == P0
    synced.windows.commit(mine, (), 5)
    synced.windows.commit(mine, (), 5)
    assert synced.checkpoints.get("s1").location == P1
    assert synced.checkpoints.get("s1").rows_applied == 5


def test_old_windows_are_deleted_and_still_counted(
    synced: Meta, target: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windowrecords, "KEPT_WINDOWS", 6)
    monkeypatch.setattr(windowrecords, "FORGETTING", 4)
    synced.windows.commit(synced.windows.begin("s2", replace(plan(), source="s2")), (), 1)
    at, number, most = P0, 1, 0
    for rows in range(40):
        ends = Location(P0.file, at.position + 100)
        begun = synced.windows.begin("s1", plan(number, at, ends, borders=(Border(1, at, "0-1-5", 11),) * (rows % 3)))
        for _ in range(2):
            synced.windows.commit(begun, (), rows)
        at, number = ends, begun.plan.last_number + 1
        kept = [each for (each,) in target.run(f"SELECT number FROM {synced.schema}.`window` WHERE source = 's1'")]
        assert begun.plan.number in kept and len(kept) <= 6 + 4
        most = max(most, len(kept))
    assert most > 5
    found, other = synced.checkpoints.get("s1"), synced.checkpoints.get("s2")
    assert (found.windows, found.rows_applied, found.window) == (40, sum(range(40)), number - 1)
    assert (other.windows, other.rows_applied) == (1, 1)
    assert target.run(f"SELECT COUNT(*) FROM {synced.schema}.`window` WHERE source = 's2'") == [(1,)]


def test_zombie_writer_waits_for_its_fate(synced: Meta, target: MariaDb) -> None:
    """A data transaction that holds the fence row finishes before the epoch rises; a later one writes nothing."""
    begun = synced.windows.begin("s1", plan())
    mine = "task = 'orders' AND source = 's1' AND target_schema = 'shop' AND target_table = 'orders'"
    claim = f"UPDATE {synced.schema}.fence SET `window` = 1 WHERE {mine} AND epoch = {begun.epoch} AND `window` < 1"
    writer = target.connect()
    writer.begin()
    with writer.cursor() as cursor, ThreadPoolExecutor(1) as pool:
        assert cursor.execute(claim) == 1
        taking_over = pool.submit(synced.windows.begin, "s1", plan())
        with pytest.raises(TimeoutError):
            taking_over.result(0.3)
        writer.commit()
        epoch = taking_over.result(900).epoch
        assert fence(target, synced) == [(1, epoch)]
        assert cursor.execute(claim) == 0
    writer.close()


def test_plan_must_follow_on_the_checkpoint(synced: Meta) -> None:
    synced.windows.commit(synced.windows.begin("s1", plan()), (), 0)
    with pytest.raises(WindowMismatch):
        synced.windows.begin("s1", plan())
    with pytest.raises(WindowMismatch):
        synced.windows.begin("s1", plan(3, P1, P2))
    assert synced.windows.open("s1") is None


IS_THERE = {
    PendingWork.PAUSE: "pause SET task = 'orders', kind = 'paused'",
    PendingWork.STATEMENT_COMMANDS: "statement_command SET id = 1, {mine}, state = 'waiting'",
    PendingWork.SEQUENCES: "sequence SET {mine}, shard_table = 'q'",
    PendingWork.ONLINE_TABLES: "online_ddl SET {mine}, online_name = '_t_gho'",
    PendingWork.SUSPENDED: "suspended_target SET {mine}, target_table = 't'",
    PendingWork.UNKNOWNS: "shard SET {mine}, shard_table = 'u', digest = ''",
    PendingWork.QUEUES: "shard_ddl SET task = 'orders', source = 's2', seq = 1, state = 'pending', after_digest = 'x'",
    PendingWork.HELD: "held_rows SET {mine}, seq = 1, structure = 'x'",
    PendingWork.DROPPED: "shard SET {mine}, shard_table = 'd', dropped = 1, digest = 'x'",
    PendingWork.DEFERRED: "deferred_row SET {mine}, target_table = 't', digest = 'x'",
    PendingWork.JOINED: "join_target SET task = 'orders', target_schema = 'shop', target_table = 't'",
    PendingWork.UNNAMED: "shard_ddl SET {mine}, seq = 4, state = 'resolved', after_digest = 'x', unnamed = 1",
}
IS_NOT = (
    "statement_command SET id = 2, {mine}, state = 'used'",
    "shard SET {mine}, shard_table = 't', digest = 'x'",
    "shard_ddl SET {mine}, seq = 2, state = 'resolved', after_digest = 'x'",
    "ddl_lock_member SET {mine}, lock_id = 'm', state = 'settled'",
    "held_rows SET task = 'orders', source = 's2', seq = 1, structure = ''",
    "pause SET task = 'others', kind = 'paused'",
)


def test_one_look_tells_what_there_is(synced: Meta, target: MariaDb) -> None:
    def insert(row: str) -> None:
        target.run("SET sql_mode = ''", f"INSERT INTO {synced.schema}.{row.format(mine=MINE)}")

    assert IS_THERE.keys() == set(PendingWork)
    for row in IS_NOT:
        insert(row)
    wanted = PendingWork(0)
    assert synced.windows.sync_state("s1").beside == wanted
    for flag, row in IS_THERE.items():
        insert(row)
        wanted |= flag
        assert synced.windows.sync_state("s1").beside == wanted, flag
    assert synced.windows.sync_state("nobody") == SyncState("nobody")


def test_commit_moves_queue_structure_and_held_files(synced: Meta) -> None:
    changes = (StructureChange(SHARD, TARGET, P1, AFTER.digest),)
    file = HeldFile(SHARD, 1, 1, 0, "held/1.parquet", 3, 30, AFTER.digest)
    first = synced.windows.begin("s1", plan(queued=(entry(),), structures=changes, safe=True))
    synced.windows.commit(first, (file,), 0)
    state = synced.structures.shards("s1")[0]
    assert (state.structure, state.queue, state.last_seq) == (AFTER.digest, (entry(),), 1)
    assert state.held == (replace(file, safe=True),)
    second = plan(2, P1, P2, releases=(Release(SHARD, state.held, TARGET),))
    synced.windows.commit(synced.windows.begin("s1", second), (), 3)
    assert synced.structures.shards("s1")[0].held == ()
    assert [change.structure for change in synced.structures.history(SHARD)] == [BEFORE.digest, AFTER.digest]


def test_shard_that_left_is_seen_while_something_of_it_waits(synced: Meta) -> None:
    gone = StructureChange(SHARD, TARGET, P1, None)
    synced.windows.commit(synced.windows.begin("s1", plan(queued=(entry(),), structures=(gone,))), (), 0)
    state = synced.structures.shards("s1")[0]
    assert state.has_left and state.queue[0].state is EntryState.PENDING
    lock = open_lock(synced)
    synced.locks.resolve(lock, Outcome.EXECUTED)
    assert synced.structures.shards("s1") == ()


def open_lock(meta: Meta):
    meta.locks.create(TARGET, entry())
    return meta.locks.open()[0]


def reach(meta: Meta, shard: Shard) -> None:
    body = plan(queued=(entry(shard),), reads=())
    meta.windows.commit(meta.windows.begin(shard.source, replace(body, source=shard.source)), (), 0)


def test_lock_is_opened_once(synced: Meta) -> None:
    synced.locks.create(TARGET, entry())
    assert synced.locks.open() == (), "nobody has queued that DDL"
    reach(synced, SHARD)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: synced.locks.create(TARGET, entry()), range(4)))
    (lock,) = synced.locks.open()
    assert (lock.id, lock.number, lock.entry) == ("orders-shop.orders-1", 1, entry())
    assert lock.opened_at.timestamp() == ALTER.timestamp and lock.seen_at > lock.opened_at


def test_resolving_settles_heads_and_debts(synced: Meta) -> None:
    reach(synced, SHARD)
    lock = open_lock(synced)
    assert synced.lock_commands.force(
        lock.id, "s1", IssuedCommand("unlock", "ann", "cli", "s2 is gone", {"owner": "s1"})
    )
    assert not synced.lock_commands.force(lock.id, None, IssuedCommand("unlock", "bob", "cli", ""))
    synced.locks.start(lock, "s1", entry())
    synced.locks.resolve(lock, Outcome.EXECUTED)
    synced.locks.resolve(lock, Outcome.EXECUTED)
    assert [(a.who, a.details) for a in synced.locks.actions(lock.id)] == [("ann", {"owner": "s1"})]
    assert [execution.outcome for execution in synced.locks.executions(lock.id)] == ["executed"]
    assert synced.structures.shards("s1")[0].queue == ()
    (pending_skips,) = synced.locks.pending_skips()[OTHER]
    assert (pending_skips.lock, pending_skips.fingerprint) == (lock.id, entry().fingerprint)


def test_newcomer_inherits_what_its_peer_owes(synced: Meta) -> None:
    reach(synced, SHARD)
    synced.locks.resolve(open_lock(synced), Outcome.EXECUTED)
    newcomer = Shard("s2", TableId("shop_1", "orders_9"))
    joins = StructureChange(newcomer, TARGET, P1, BEFORE.digest, joins=True, peer=OTHER)
    begun = synced.windows.begin("s2", replace(plan(structures=(joins,)), source="s2"))
    synced.windows.commit(begun, (), 0)
    assert synced.locks.pending_skips().keys() == {OTHER, newcomer}


def test_newcomer_owes_what_was_resolved_since_its_window_was_planned(synced: Meta) -> None:
    reach(synced, SHARD)
    reach(synced, OTHER)
    newcomer = Shard("s2", TableId("shop_1", "orders_9"))
    joins = StructureChange(newcomer, TARGET, P1, BEFORE.digest, joins=True, peer=SHARD, expects=(1,))
    begun = synced.windows.begin("s2", replace(plan(2, P1, P2, structures=(joins,)), source="s2"))
    synced.locks.resolve(open_lock(synced), Outcome.EXECUTED)
    synced.windows.commit(begun, (), 0)
    assert [pending_skips.lock for pending_skips in synced.locks.pending_skips()[newcomer]] == ["orders-shop.orders-1"]


NEW_NAME = Shard("s1", TableId("shop_1", "orders_5"))
RENAMED = Rename(SHARD, NEW_NAME.table, P2)


def test_all_that_is_kept_of_a_shard_follows_its_name(synced: Meta) -> None:
    file = HeldFile(SHARD, 1, 1, 0, "held/1.parquet", 3, 30, AFTER.digest)
    changes = (StructureChange(SHARD, TARGET, P1, AFTER.digest),)
    synced.windows.commit(synced.windows.begin("s1", plan(queued=(entry(),), structures=changes)), (file,), 0)
    lock = open_lock(synced)
    synced.windows.commit(synced.windows.begin("s1", plan(2, P1, P2, renames=(RENAMED,))), (), 0)
    (state,) = synced.structures.shards("s1")
    assert (state.shard, state.queue, state.held) == (NEW_NAME, (entry(NEW_NAME),), (replace(file, shard=NEW_NAME),))
    assert synced.locks.get(lock.id).entry == entry(NEW_NAME)
    assert [change.location for change in synced.structures.history(NEW_NAME)] == [P0, P1, P2]
    assert synced.structures.history(SHARD) == ()


def test_two_shards_change_their_names_with_debts_and_equal_numbers(synced: Meta) -> None:
    two = Shard("s2", TableId("shop_1", "orders_2"))
    joins = StructureChange(two, TARGET, P1, AFTER.digest, joins=True)
    files = [HeldFile(shard, 1, 1, 0, f"held/{shard}", 3, 30, AFTER.digest) for shard in (OTHER, two)]
    body = plan(queued=(entry(OTHER), entry(two)), structures=(joins,))
    synced.windows.commit(synced.windows.begin("s2", replace(body, source="s2")), files, 0)
    synced.locks.create(TARGET, entry(OTHER))
    synced.locks.resolve(synced.locks.open()[0], Outcome.EXECUTED)
    assert synced.locks.pending_skips().keys() == {SHARD}
    swap = (Rename(OTHER, two.table, P2), Rename(two, OTHER.table, P2))
    synced.windows.commit(synced.windows.begin("s2", replace(plan(2, P1, P2, renames=swap), source="s2")), (), 0)
    held = {state.shard: state.held[0].path for state in synced.structures.shards("s2")}
    assert held == {OTHER: f"held/{two}", two: f"held/{OTHER}"}


def test_a_debt_is_not_settled_under_a_name_that_another_shard_has_now(synced: Meta) -> None:
    reach(synced, OTHER)
    synced.locks.create(TARGET, entry(OTHER))
    lock = synced.locks.open()[0]
    synced.locks.resolve(lock, Outcome.EXECUTED)
    reach(synced, SHARD)
    (state,) = synced.structures.shards("s1")
    synced.locks.settle(SkipResolution(SHARD, 1, lock.id, "another"))
    assert synced.locks.pending_skips().keys() == {SHARD}
    synced.locks.settle(SkipResolution(SHARD, 1, lock.id, state.shard_uid))
    assert not synced.locks.pending_skips() and not synced.structures.shards("s1")[0].queue


def test_newcomer_finds_its_peer_that_was_renamed_since_its_window_was_planned(synced: Meta) -> None:
    reach(synced, SHARD)
    reach(synced, OTHER)
    newcomer, (peer,) = Shard("s2", TableId("shop_1", "orders_9")), synced.structures.shards("s1")
    joins = StructureChange(newcomer, TARGET, P1, BEFORE.digest, True, SHARD, peer.shard_uid, (1,))
    begun = synced.windows.begin("s2", replace(plan(2, P1, P2, structures=(joins,)), source="s2"))
    synced.windows.commit(synced.windows.begin("s1", plan(2, P1, P2, renames=(RENAMED,))), (), 0)
    synced.locks.create(TARGET, entry(NEW_NAME))
    synced.locks.resolve(synced.locks.open()[0], Outcome.EXECUTED)
    synced.windows.commit(begun, (), 0)
    assert [pending_skips.lock for pending_skips in synced.locks.pending_skips()[newcomer]] == ["orders-shop.orders-1"]


def test_a_rename_waits_for_a_lock_that_is_being_resolved_and_takes_nothing_before(
    synced: Meta, target: MariaDb
) -> None:
    reach(synced, SHARD)
    open_lock(synced)
    begun = synced.windows.begin("s1", plan(2, P1, P2, renames=(RENAMED,)))
    resolving = target.connect()
    resolving.begin()
    with resolving.cursor() as cursor, ThreadPoolExecutor(1) as pool:
        cursor.execute(f"SELECT * FROM {synced.schema}.ddl_lock FOR UPDATE")
        commit = pool.submit(synced.windows.commit, begun, (), 0)
        with pytest.raises(TimeoutError):
            commit.result(0.3)
        cursor.execute(f"SELECT * FROM {synced.schema}.shard_ddl FOR UPDATE NOWAIT")
        resolving.commit()
        commit.result(900)
    resolving.close()
    assert synced.structures.shards("s1")[0].shard == NEW_NAME


def test_a_shard_is_not_admitted_under_a_name_that_another_has_now(synced: Meta) -> None:
    reach(synced, SHARD)
    shard_uid = {state.shard: state.shard_uid for state in synced.structures.shards()}
    for names in (("another", shard_uid[OTHER]), (shard_uid[SHARD], "another")):
        synced.locks.admit(Admission(SHARD, 1, OTHER, *names))
        assert synced.structures.shards("s1")[0].queue == (entry(),)
    synced.locks.admit(Admission(SHARD, 1, OTHER, shard_uid[SHARD], shard_uid[OTHER]))
    assert synced.structures.shards("s1")[0].queue == ()


def test_a_statement_about_a_whole_target_and_a_window_with_a_joining_shard_exclude_each_other(synced: Meta) -> None:
    drop = replace(entry(), routed="DROP TABLE `shop`.`orders`", after=BEFORE.digest, whole=WholeChange.DROP)
    synced.windows.commit(synced.windows.begin("s1", plan(queued=(drop,), reads=())), (), 0)
    synced.locks.create(TARGET, drop)
    (lock,) = synced.locks.open()
    assert lock.entry.whole is WholeChange.DROP
    joining = StructureChange(Shard("s2", TableId("shop_2", "orders_9")), TARGET, P1, BEFORE.digest, joins=True)
    first = replace(plan(structures=(joining,)), source="s2")
    begun = synced.windows.begin("s2", first)
    assert not synced.locks.start(lock, "s1", drop)
    synced.windows.commit(begun, (), 0)
    assert synced.locks.start(lock, "s1", drop)
    with pytest.raises(TargetIsReplaced):
        synced.windows.begin("s2", replace(first, number=2, begins=P1, ends=P2))
    synced.locks.resolve(lock, Outcome.EXECUTED)
    synced.windows.begin("s2", replace(first, number=2, begins=P1, ends=P2))
