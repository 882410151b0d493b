"""What the variables of a source say about its binlog; no server of the tests has `binlog_storage_engine`."""

import pytest

from unshard.adapters.upstream import refuse_without_files
from unshard.errors.relay import BinlogInEngine, BinlogOff


@pytest.mark.parametrize("found", [{}, {"log_bin": "OFF"}, {"log_bin": "0", "binlog_storage_engine": "innodb"}])
def test_no_binlog(found: dict[str, str]) -> None:
    with pytest.raises(BinlogOff):
        refuse_without_files("s1", found)


def test_a_binlog_in_an_engine_has_no_files() -> None:
    for on in ("ON", "1"):
        with pytest.raises(BinlogInEngine, match="s1 has binlog_storage_engine = innodb") as caught:
            refuse_without_files("s1", {"log_bin": on, "binlog_storage_engine": "innodb"})
        assert caught.value.code == "US-3033"
        refuse_without_files("s1", {"log_bin": on, "binlog_storage_engine": ""})
        refuse_without_files("s1", {"log_bin": on})
