"""sql_mode in QUERY events: converts its bits to names for SET, and defines the two bits that affect parsing."""

from unshard.core.sql.words import phrases_of, words_of

ANSI_QUOTES = 0x4
NO_BACKSLASH_ESCAPES = 0x100000

# The index is MariaDB's bit. MySQL has the same bits except bit 4, which it does not use, and those above 31.
NAMES = phrases_of("""
    REAL_AS_FLOAT, PIPES_AS_CONCAT, ANSI_QUOTES, IGNORE_SPACE, IGNORE_BAD_TABLE_OPTIONS, ONLY_FULL_GROUP_BY,
    NO_UNSIGNED_SUBTRACTION, NO_DIR_IN_CREATE, POSTGRESQL, ORACLE, MSSQL, DB2, MAXDB, NO_KEY_OPTIONS, NO_TABLE_OPTIONS,
    NO_FIELD_OPTIONS, MYSQL323, MYSQL40, ANSI, NO_AUTO_VALUE_ON_ZERO, NO_BACKSLASH_ESCAPES, STRICT_TRANS_TABLES,
    STRICT_ALL_TABLES, NO_ZERO_IN_DATE, NO_ZERO_DATE, ALLOW_INVALID_DATES, ERROR_FOR_DIVISION_BY_ZERO, TRADITIONAL,
    NO_AUTO_CREATE_USER, HIGH_NOT_PRECEDENCE, NO_ENGINE_SUBSTITUTION, PAD_CHAR_TO_FULL_LENGTH, EMPTY_STRING_IS_NULL,
    SIMULTANEOUS_ASSIGNMENT, TIME_ROUND_FRACTIONAL
""")
STRICT = 1 << NAMES.index("STRICT_TRANS_TABLES") | 1 << NAMES.index("STRICT_ALL_TABLES")
NO_ZERO_IN_DATE = 1 << NAMES.index("NO_ZERO_IN_DATE")
COMMON_BITS = (1 << 32) - 1 - (1 << 4)
MYSQL_TRUNCATES = 1 << 32
MARIADB_ROUNDS = 1 << 34
NOT_OF_MYSQL = words_of("""
    IGNORE_BAD_TABLE_OPTIONS POSTGRESQL ORACLE MSSQL DB2 MAXDB NO_KEY_OPTIONS NO_TABLE_OPTIONS NO_FIELD_OPTIONS MYSQL323
    MYSQL40 NO_AUTO_CREATE_USER EMPTY_STRING_IS_NULL SIMULTANEOUS_ASSIGNMENT TIME_ROUND_FRACTIONAL
""")
"""Modes that MySQL 8 does not have; for a combined mode, the server also sets the bits of its parts."""


def from_mysql(sql_mode: int) -> int:
    """Return MariaDB's bits for MySQL's; MySQL rounds fractional seconds unless TIME_TRUNCATE_FRACTIONAL is set."""
    return sql_mode & COMMON_BITS | (0 if sql_mode & MYSQL_TRUNCATES else MARIADB_ROUNDS)


def mode_names(sql_mode: int, *, mariadb: bool = True) -> str:
    """Return the names of the modes for SET sql_mode on MariaDB, or on MySQL and TiDB."""
    names = [name for bit, name in enumerate(NAMES) if sql_mode >> bit & 1]
    if not mariadb:
        names = [name for name in names if name not in NOT_OF_MYSQL]
        names += [] if sql_mode & MARIADB_ROUNDS else ["TIME_TRUNCATE_FRACTIONAL"]
    return ",".join(names)
