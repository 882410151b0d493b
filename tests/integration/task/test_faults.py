"""A connection that breaks at any statement ends in a coded error, and the next attempt goes on."""

import pytest

from tests.cutting import cut_at_commit
from unshard.adapters.meta import Meta
from unshard.errors.source import ConnectionLost
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

ANY_STATEMENT = b"\x03"


@pytest.mark.parametrize("arrives", [False, True], ids=["lost statement", "lost answer"])
def test_a_connection_that_breaks_while_meta_tables_are_created(target: MariaDb, unique: str, arrives: bool) -> None:
    lost, number, is_cut = [], 0, True
    while is_cut:
        number += 1
        with cut_at_commit(target, arrives=arrives, number=number, statement=ANY_STATEMENT) as (cut, way):
            meta = Meta(cut.server, unique, "task")
            try:
                meta.migrate()
                target.run(f"DROP DATABASE {unique}")  # complete; so that the next attempt begins again
            except ConnectionLost as error:
                lost.append(error.where)
            finally:
                meta.close()
            is_cut = way.broken.is_set()
    assert len(lost) > 30 and set(lost) == {"target (meta tables)"}
