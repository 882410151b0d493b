"""A CREATE TABLE is split into parts; trials on a server find the parts that it refuses."""

import pytest

from unshard.core.structures.parsedtable import CreateParts, Part, PartKind, create_parts, without_parts
from unshard.units.ddl.createtrial import RefusedPart, find_refused

TEXT = """CREATE TABLE `t` (
  `id` int(11) NOT NULL AUTO_INCREMENT,
  `g` geometry NOT NULL,
  `v` varchar(9) GENERATED ALWAYS AS (concat(`id`,',)')) STORED,
  PRIMARY KEY (`id`),
  UNIQUE KEY `u` (`v`(3),`id`),
  SPATIAL KEY `s` (`g`),
  KEY `k` (`v`) IGNORED,
  CONSTRAINT `c` CHECK (`id` > 0)
) ENGINE=InnoDB DEFAULT CHARSET=latin1 COLLATE=latin1_bin `PAGE_COMPRESSED`=1 COMMENT='a=b, (' UNION=(`a`,`b`)
 PARTITION BY RANGE (`id`)
(PARTITION `a` VALUES LESS THAN (10) ENGINE = InnoDB)"""
WHOLE = RefusedPart(None, 1, "the whole")


def test_the_parts_of_a_statement() -> None:
    parts = create_parts(TEXT)
    assert [part.name for part in parts.columns] == ["id", "g", "v"]
    assert [part.is_generated for part in parts.columns] == [False, False, True]
    assert [(part.kind, part.name, part.is_unique) for part in parts.keys] == [
        (PartKind.INDEX, "PRIMARY", True),
        (PartKind.INDEX, "u", True),
        (PartKind.INDEX, "s", False),
        (PartKind.INDEX, "k", False),
        (PartKind.CHECK, "c", False),
    ]
    assert [part.text for part in parts.options][:-1] == [
        "ENGINE=InnoDB",
        "DEFAULT CHARSET=latin1 COLLATE=latin1_bin",
        "`PAGE_COMPRESSED`=1",
        "COMMENT='a=b, ('",
        "UNION=(`a`,`b`)",
    ]
    assert parts.options[-1].kind is PartKind.PARTITION
    assert create_parts(parts.text) == parts


def test_indexes_are_taken_out_of_a_statement() -> None:
    parts = create_parts(TEXT)
    shorter = create_parts(without_parts(TEXT, [parts.keys[2], parts.keys[3]]))
    assert shorter == parts.without([parts.keys[2], parts.keys[3]])


def asked(*words: str):
    """Return a server that refuses every statement with one of these words."""

    def ask(text: str) -> RefusedPart | None:
        found = next((word for word in words if word in text), None)
        return RefusedPart(None, 1, found) if found else None

    return ask


@pytest.mark.parametrize(
    ("words", "culprits"),
    [
        (["geometry"], ["column g"]),
        (["geometry", "IGNORED", "PAGE_"], ["column g", "index k", "table option `PAGE_COMPRESSED`=1"]),
        (["STORED"], ["column v"]),
        (["AUTO_INCREMENT"], ["None"]),
        (["CHECK", "PARTITION BY"], ["CHECK constraint c", "partitioning"]),
        (["UNIQUE"], ["index u"]),
    ],
)
def test_the_parts_that_a_server_refuses_are_found(words: list[str], culprits: list[str]) -> None:
    found = find_refused(create_parts(TEXT), asked(*words), WHOLE)
    assert [str(refused.part) for refused in found] == culprits


def test_parts_that_are_refused_only_together() -> None:
    columns = tuple(Part(PartKind.COLUMN, f"c{n}", f"`c{n}` int", bare=f"`c{n}` int") for n in range(5))
    parts = CreateParts("CREATE TABLE `t` (", columns, (), ())

    def at_most_four(text: str) -> RefusedPart | None:
        return RefusedPart(None, 1117, "Too many columns") if text.count(" int") > 4 else None

    assert list(find_refused(parts, at_most_four, WHOLE)) == [RefusedPart(None, 1117, "Too many columns")]
