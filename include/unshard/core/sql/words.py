"""The closed lists of words that the DDL parser uses."""

from collections.abc import Mapping


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


def phrases_of(text: str) -> tuple[str, ...]:
    """Return the phrases of a text, which commas separate, in their order."""
    return tuple(" ".join(phrase.split()) for phrase in text.split(","))


def heads_of(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the phrases of a text as sequences of words."""
    return tuple(tuple(phrase.split()) for phrase in phrases_of(text))


HEADS = words_of("ALTER CREATE DROP RENAME TRUNCATE")
"""First words of the statements that name tables or columns."""

BEFORE_TABLES = words_of("FOR FROM JOIN LASTVAL LIKE NEXTVAL REFERENCES RENAME SETVAL TABLE UNION")
"""Words after which a qualified name is that of a table, not of a column."""

OTHER_OBJECTS = words_of("""
    EVENT FUNCTION INSTANCE LIBRARY LOGFILE PACKAGE PROCEDURE RESOURCE ROLE SEQUENCE SERVER SPATIAL TABLESPACE TRIGGER
    UNDO USER VIEW
""")
"""Objects whose statements change neither rows nor structure of any shard."""

OTHER_VERBS = words_of("""
    ANALYZE CHECK FLUSH GRANT INSTALL KILL LOCK OPTIMIZE RELEASE REPAIR RESET REVOKE ROLLBACK SAVEPOINT SET
    UNINSTALL UNLOCK
""")
"""Verbs of statements that change neither rows nor structure of any table."""

OBJECT_ATTRIBUTES = words_of("AGGREGATE DUALITY JSON MATERIALIZED RELATIONAL")
"""Words that may precede FUNCTION and VIEW."""

ROWS_VERBS = words_of("""
    CALL DELETE DO INSERT LOAD REPLACE SELECT UPDATE WITH
""")
"""Verbs that should not be in a binlog whose format is ROW."""

TABLE_OPTIONS = words_of("""
    AUTOEXTEND_SIZE AUTO_ID_CACHE AUTO_INCREMENT AUTO_RANDOM_BASE AVG_ROW_LENGTH CHARACTER CHARSET CHECKSUM COLLATE
    COMMENT COMPRESSION CONNECTION DATA DEFAULT DELAY_KEY_WRITE ENCRYPTED ENCRYPTION ENCRYPTION_KEY_ID ENGINE
    ENGINE_ATTRIBUTE INDEX INSERT_METHOD KEY_BLOCK_SIZE MAX_ROWS MIN_ROWS PACK_KEYS PAGE_CHECKSUM PAGE_COMPRESSED
    PAGE_COMPRESSION_LEVEL PASSWORD ROW_FORMAT SECONDARY_ENGINE SECONDARY_ENGINE_ATTRIBUTE
    SHARD_ROW_ID_BITS STATS_AUTO_RECALC STATS_PERSISTENT STATS_SAMPLE_PAGES STORAGE TABLE_CHECKSUM TABLESPACE
    TRANSACTIONAL TYPE
""")
"""Options of ALTER TABLE that may be written without an equals sign."""

RESERVED = words_of("""
    ADD ALL ALTER AND AS ASC BY CASCADE CHANGE CHARACTER CHECK COLLATE COLUMN CONSTRAINT CONVERT CREATE
    CURRENT_TIMESTAMP DATABASE DEFAULT DELETE DESC DROP EXISTS FALSE FORCE FOREIGN FULLTEXT GENERATED GROUP IF IN
    INDEX INTO IS KEY KEYS LIKE LOCK MATCH NOT NULL ON OR ORDER PARTITION PRIMARY REFERENCES RENAME REPLACE RESTRICT
    SELECT SET SPATIAL STORED TABLE THEN TO TRUE UNION UNIQUE UNSIGNED UPDATE USE USING VALUES VIRTUAL WHEN WHERE
    WITH ZEROFILL
""")
"""Words that are names only if they are quoted, and that begin or separate the parts of a DDL."""

OWN_VALUES = words_of("""
    CONNECTION_ID CURDATE CURRENT_DATE CURRENT_ROLE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER CURTIME DATABASE
    LASTVAL LAST_INSERT_ID LOCALTIME LOCALTIMESTAMP NEXT NEXTVAL NOW PREVIOUS RAND RANDOM_BYTES SCHEMA SESSION_USER
    MAKETIME SEC_TO_TIME SYSDATE SYSTEM_USER SYS_GUID TIME UNIX_TIMESTAMP USER UTC_DATE UTC_TIME UTC_TIMESTAMP UUID
    UUID_SHORT UUID_V4 UUID_V7 VERSION /
""")
"""Words in expressions whose value depends on the time, the row, the server or a variable that is in no binlog."""

TIME_FOR_NULL = "with the time of each server for NULL"
"""In the fingerprint of a DDL: the conversion of a column to TIMESTAMP NOT NULL."""

ADDS_NO_COLUMN = words_of("""
    CHECK CONSTRAINT FOREIGN FULLTEXT INDEX KEY PARTITION PERIOD PRIMARY SPATIAL SYSTEM UNIQUE VECTOR
""")
"""Words that may follow ADD instead of a column name; a column with such a name must be quoted."""

FOLLOWED = heads_of("""
    ADD, DROP, MODIFY, CHANGE, RENAME, ALTER, CONVERT TO, ORDER BY, ALGORITHM, LOCK, FORCE, ENABLE KEYS, DISABLE KEYS,
    PARTITION BY, REMOVE PARTITIONING, TRUNCATE PARTITION, COALESCE PARTITION, REORGANIZE PARTITION, ANALYZE PARTITION,
    CHECK PARTITION, OPTIMIZE PARTITION, REBUILD PARTITION, REPAIR PARTITION, WITH VALIDATION, WITHOUT VALIDATION
""")
"""First words of the ALTER TABLE specifications whose effect can be tried on an empty trial table."""

BECOMES = "a table becomes a sequence, or a sequence a table"

VERSIONS = "it adds or drops system versioning and makes other changes in the same statement"

NOT_FOLLOWED: Mapping[tuple[str, ...], str] = {
    ("ADD", "SYSTEM", "VERSIONING"): VERSIONS,
    ("DROP", "SYSTEM", "VERSIONING"): VERSIONS,
    ("EXCHANGE", "PARTITION"): "the rows of a partition are exchanged without being in the binlog",
    ("CONVERT", "PARTITION"): "the rows of a partition leave the table without being in the binlog",
    ("CONVERT", "TABLE"): "rows of another table come in without being in the binlog",
    ("DISCARD", "TABLESPACE"): "rows vanish without being in the binlog",
    ("IMPORT", "TABLESPACE"): "rows come in without being in the binlog",
    ("DISCARD", "PARTITION"): "rows vanish without being in the binlog",
    ("IMPORT", "PARTITION"): "rows come in without being in the binlog",
    ("SEQUENCE",): BECOMES,
}
"""First words of the specifications whose effect a trial table does not show, with the reason."""
