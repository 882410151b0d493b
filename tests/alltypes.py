"""Tables with every type and its critical values; shared by tests of dump and binlog."""

SESSION = "SET sql_mode = '', time_zone = '+00:00', NAMES utf8mb4"
TABLES = {
    "ints": (
        "id INT PRIMARY KEY, a TINYINT, b SMALLINT UNSIGNED, c MEDIUMINT, d INT UNSIGNED, e BIGINT, f BIGINT UNSIGNED,"
        " g INT(6) ZEROFILL, h BOOL, i DECIMAL(8,2) ZEROFILL",
        "(1,-128,65535,-8388608,4294967295,-9223372036854775808,18446744073709551615,42,1,5.5)",
        "(2,127,0,8388607,0,9223372036854775807,0,0,0,0)",
        "(3,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL)",
    ),
    "decimals": (
        "id INT PRIMARY KEY, a DECIMAL(65,30), b DECIMAL(5,5), c DECIMAL(10,0), d DECIMAL(20,18)",
        "(1,-12345678901234567890123456789012345.123456789012345678901234567890,-0.00001,-1,-99.999999999999999999)",
        "(2,0,0,0,0.000000000000000001)",
        "(3,NULL,0.99999,9999999999,NULL)",
    ),
    "floats": (
        "id INT PRIMARY KEY, a FLOAT, b DOUBLE, c FLOAT(7,3), d DOUBLE(10,3), e DOUBLE UNSIGNED",
        "(1,3.4e38,-1.7e308,1.1,1.1,1e300)",
        "(2,1e-38,0.1,0,0,0)",
        "(3,-0e0,-0e0,-1234.567,1234567.891,4.9e-324)",
        "(4,1.1,1e15,16777217,123456,1e14)",
        "(5,0.1,1e16,9999.999,0.001,123456789012345678)",
        "(6,NULL,1.5e-7,NULL,NULL,NULL)",
        "(7,123456.789,0.00001,0.5,-0.5,1e-15)",
    ),
    "bits": (
        "id INT PRIMARY KEY, a BIT(1), b BIT(10), c BIT(64), d ENUM('a','b','ü'), e SET('x','y','z'), f ENUM('a'),"
        " g ENUM('ä','') CHARSET latin1, h SET('ä','ö') CHARSET latin1",
        "(1,1,b'1000000011',~0,'ü','x,z','nope','ä','ä,ö')",
        "(2,0,0,0,'a','',NULL,'','ö')",
        "(3,NULL,NULL,NULL,NULL,NULL,'a',NULL,NULL)",
    ),
    "dates": (
        "id INT PRIMARY KEY, a DATE, b DATE, c DATETIME, d DATETIME(6), e TIMESTAMP NULL, f TIMESTAMP(3) NULL,"
        " g YEAR, h YEAR",
        "(1,'0000-00-00','2020-00-15','0000-00-00','9999-12-31 23:59:59.999999','0000-00-00',"
        "'2037-01-01 00:00:00.007',2155,0)",
        "(2,'1000-01-01','9999-12-31','2020-02-00','0001-01-01 00:00:00.000001','1970-01-01 00:00:01',"
        "'1970-01-01 00:00:00.001',1901,NULL)",
        "(3,NULL,NULL,NULL,NULL,NULL,'0000-00-00',NULL,2020)",
    ),
    "times": (
        "id INT PRIMARY KEY, a TIME, b TIME(1), c TIME(3), d TIME(6)",
        "(1,'-00:00:01','-00:00:00.1','-838:59:59.5','-12:34:56.123456')",
        "(2,'838:59:59','00:00:00.9','-00:00:00.001','-00:00:00.000001')",
        "(3,'-01:00:00','-01:00:01.5','12:00:00.123','838:59:58.999999')",
        "(4,0,NULL,NULL,NULL)",
    ),
    "texts": (
        "id INT PRIMARY KEY, a VARCHAR(20) CHARSET latin1, b VARCHAR(20) CHARSET gbk, c VARCHAR(20) CHARSET utf8mb3,"
        " d VARCHAR(20) CHARSET ucs2, e TEXT CHARSET latin1, f CHAR(10) CHARSET utf8mb4, g LONGTEXT, h CHAR(5) CHARSET"
        " utf16, j JSON",
        "(1,'é€',_utf8mb4'漢','é','漢é','é€','😀  ',REPEAT('long\\t\\n\\\\',9000),'ab','{\"a\":[1,2.5,null,true]}')",
        "(2,x'818d',NULL,NULL,NULL,x'81','',NULL,NULL,NULL)",
        "(3,' x ','','','','','NULL','\\\\N','','\"\"')",
        "(4,REPEAT('a',20),'b','c','d',REPEAT('e',250),'f',REPEAT('g',251),'h','[]')",
    ),
    "blobs": (
        "id INT PRIMARY KEY, a VARBINARY(20), b BINARY(6), c BLOB, d LONGBLOB, e GEOMETRY",
        "(1,x'00ff80',x'0102','\\0\\xff',REPEAT(x'00ff',33000),POINT(1,2))",
        "(2,x'ff',x'ff0000000000',x'ff',NULL,NULL)",
        "(3,'','','','',NULL)",
    ),
    "generated": (
        "id INT PRIMARY KEY, v INT, gv INT AS (v*2) VIRTUAL, gs INT AS (v*3) STORED, inv INT INVISIBLE DEFAULT 7",
    ),
}
"""Columns and rows by table name."""


def statements(schema: str, tables: tuple[str, ...] = tuple(TABLES)) -> list[str]:
    """Return the statements that create the tables in a schema and fill them."""
    made = ["SET sql_mode = '', time_zone = '+00:00'", f"CREATE DATABASE IF NOT EXISTS {schema}"]
    for name in tables:
        columns, *rows = TABLES[name]
        made.append(f"CREATE TABLE {schema}.{name} ({columns}) CHARSET utf8mb4")
        made += [f"INSERT INTO {schema}.{name} VALUES {row}" for row in rows]
        if name == "generated":
            made.append(f"INSERT INTO {schema}.{name} (id, v) VALUES (1, 5), (2, NULL)")
    return made
