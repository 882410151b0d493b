"""Integer types: their sizes in bits, and the range of their columns."""

from unshard.core.model import Column

BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "integer": 32, "bigint": 64}


def limits(column: Column) -> tuple[int, int]:
    """Return the smallest and the largest number of an integer column."""
    bits = BITS[column.data_type]
    return (0, (1 << bits) - 1) if column.is_unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
