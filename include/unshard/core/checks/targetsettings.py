"""Finds settings of the target's sessions with which unshard does not work; missing settings are not a problem."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from unshard.errors import UnshardError
from unshard.errors.checks import TargetSettingWrong

OLD_ROWS = "reads show rows of an earlier moment, and unshard decides by what it reads"
NO_LOCKS = "transactions take no locks: a conflict shows at COMMIT only, or TiDB repeats the writes unchecked"
DUPLICATES = "a key that exists already is found at COMMIT only, so the collision cannot be told apart or treated"
BAD_TEXT = "bytes that are no valid text are stored without an error"
OFF = ("0", "OFF")


@dataclass(frozen=True, slots=True)
class SettingRule:
    """The values of a variable with which unshard works; the first is the recommended one."""

    good: tuple[str, ...]
    why: str


RULES = {
    "tidb_txn_mode": SettingRule(("pessimistic",), NO_LOCKS),
    "tidb_constraint_check_in_place_pessimistic": SettingRule(("ON", "1"), DUPLICATES),
    "tidb_read_staleness": SettingRule(("0",), OLD_ROWS),
    "tidb_enable_external_ts_read": SettingRule(OFF, OLD_ROWS),
    "tidb_low_resolution_tso": SettingRule(OFF, "TiDB refuses every write"),
    "tidb_skip_utf8_check": SettingRule(OFF, BAD_TEXT),
    "tidb_skip_ascii_check": SettingRule(OFF, BAD_TEXT),
}


def wrong_settings(values: Mapping[str, str]) -> Iterator[UnshardError]:
    """Yield an error for each wrong value; `values` are the settings by variable."""
    for variable, rule in RULES.items():
        value = values.get(variable)
        if value is not None and value.lower() not in {good.lower() for good in rule.good}:
            yield TargetSettingWrong(variable, value, rule.why, rule.good[0])
