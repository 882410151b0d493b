"""Every column type: what the decoder reads from the binlog equals what the server prints, byte for byte."""

# ruff: noqa: E501 - the columns and values of a case are compared in one look

import struct
from random import Random

import pytest

from tests.binlogs import changes, end_of, round_trip, schema_of, selected
from unshard.binlog.decoder import INSERT
from unshard.core.model import TableId

pytestmark = pytest.mark.integration

LAX = "SET SESSION sql_mode='NO_AUTO_VALUE_ON_ZERO', time_zone='+00:00'"
CASES = {
    "integers": (
        "t1 tinyint, t2 smallint, t3 mediumint, t4 int, t5 bigint, u1 tinyint unsigned, u2 smallint unsigned,"
        "u3 mediumint unsigned, u4 int unsigned, u5 bigint unsigned, b bool not null, n int not null",
        [
            "-128,-32768,-8388608,-2147483648,-9223372036854775808,0,0,0,0,0,0,-1",
            "127,32767,8388607,2147483647,9223372036854775807,255,65535,16777215,4294967295,18446744073709551615,1,0",
            "NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1,7",
            "-1,-1,-1,-1,-1,200,60000,16000000,4000000000,18000000000000000000,-5,2147483647",
        ],
    ),
    "zerofill": (
        "a int(5) zerofill, b bigint(20) unsigned zerofill, c tinyint zerofill, d decimal(6,2) zerofill,"
        "e mediumint(8) zerofill not null, f double zerofill, g float zerofill, h double(8,2) zerofill",
        ["12,12,1,1.5,3,1.5,2.5,3.5", "123456,0,0,0,0,0,0,0", "NULL,NULL,NULL,NULL,99,NULL,NULL,NULL"],
    ),
    "decimals": (
        "a decimal(5,5), b decimal(65,30), c decimal(10,0), d decimal(20,18), e decimal(65,0), f decimal(1,1),"
        "g decimal(9,0), h decimal(18,9) not null, i decimal(38,38), j decimal(10,3) unsigned",
        [
            "-0.00001,-12345678901234567890123456789012345.123456789012345678901234567890,-1,"
            f"-9.999999999999999999,{'9' * 65},0.9,-999999999,-0.000000001,0.{'9' * 38},0.001",
            f"0,0,0,0.000000000000000001,-{'9' * 65},-0.9,1,123456789.987654321,-0.{'0' * 37}1,1234567.891",
            "-0.0,-0,-0.0,-0.0,0,0,100000000,-100000000.1,0,0",
            "NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL",
            f"0.99999,{'9' * 35}.{'9' * 30},9999999999,10.5,-1,0,0,0,0,0",
        ],
    ),
    "floats": (
        "f float, g double, h double(10,2), i double(20,8), j float not null, k double not null, l float(10,2)",
        [
            "1.1,1.1,1.1,1.1,3.4e38,-1.7e308,1.1",
            "1e-38,1e15,-1.005,0.00000001,16777216,1e16,99999.99",
            "0,0,0,0,-0.0,-0.0,-0.0",
            "NULL,NULL,NULL,NULL,1e20,123456789012345680,NULL",
            "0.1,1e-15,99999999.99,123456789012.12345678,1e-10,1e-16,0.005",
            "123456.7,100000000000000,0,0,-1e-5,0.0001,0",
            "1e10,123456789012345,0.5,0.5,7,1234567890123456789,1234567.89",
        ],
    ),
    "strings": (
        "l1 varchar(20) charset latin1, gb varchar(20) charset gbk, u3 varchar(20) charset utf8mb3, uc varchar(20)"
        " charset ucs2, u16 char(10) charset utf16, u32 char(5) charset utf32, ch char(10) charset utf8mb4,"
        "long1 varchar(300), chl char(255) charset utf8mb4 not null, t tinytext, tx text charset latin1,"
        "m mediumtext, l longtext, j json, sj char(9) charset sjis, cp varchar(9) charset cp1251",
        [
            "'é€','漢','é','漢é','漢😀','😀','😀  ',repeat('ü',150),'x','tiny  ','é€','a\\nb\\t\\\\c\\0',repeat('ab',70000),"
            "'{\"a\": [1, 2.5, null]}','表','Ж'",
            "x'818d',NULL,NULL,NULL,NULL,NULL,'',NULL,repeat('語',255),NULL,x'81',NULL,NULL,NULL,NULL,NULL",
            "'','','','','','','','','','','','','','1','',''",
            "' a ',' a ',' a ',' a ',' a ',' a ',' a ',' a ',' a ',' a ',' a ',' a ',' a ','\"x\"',' a ',' a '",
        ],
    ),
    "binary": (
        "vb varbinary(20), bn binary(6), bl blob, tb tinyblob, mb mediumblob, lb longblob, bb binary(255) not null,"
        "vl varbinary(400)",
        [
            "x'00ff80',x'0102','\\0\\xff',x'00',repeat(x'00ff',40000),repeat('z',70000),x'01',repeat(x'00',300)",
            "x'ff',x'ff0000000000',x'ff','','','','',''",
            "x'0102000000',x'000000000000',x'200020',x'20','  ','  ',repeat(x'20',255),x'00'",
            "NULL,NULL,NULL,NULL,NULL,NULL,'a',NULL",
        ],
    ),
    "dates": (
        "d date, dt datetime, d1 datetime(1), d3 datetime(3), d6 datetime(6), ts timestamp null, t1 timestamp(1) null,"
        "t2 timestamp(2) null, t5 timestamp(5) null, t6 timestamp(6) null, y year, tn timestamp not null",
        [
            "'0000-00-00','0000-00-00','0000-00-00','0000-00-00','0000-00-00','0000-00-00','0000-00-00','0000-00-00',"
            "'0000-00-00','0000-00-00',0,'0000-00-00'",
            "'2024-00-10','2024-01-00','2024-00-00 01:02:03.4','9999-12-31 23:59:59.999','9999-12-31 23:59:59.999999',"
            "'2038-01-19 03:14:07','2037-01-01 00:00:00.7','2037-01-01 00:00:00.07','2037-01-01 00:00:00.00007',"
            "'2038-01-19 03:14:07.999999',2155,'1970-01-01 00:00:01'",
            "'1000-01-01','0001-01-01 00:00:01','0001-01-01 00:00:00.1','1000-01-01 00:00:00.001',"
            "'0001-01-01 00:00:00.000001','1970-01-01 00:00:01','1970-01-01 00:00:00.1','1970-01-01 00:00:01.01',"
            "'1970-01-01 00:00:00.00001','1970-01-01 00:00:00.000001',1901,'2000-02-29 12:34:56'",
            "NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2024-12-31 23:59:59'",
        ],
    ),
    "times": (
        "t time, t1 time(1), t2 time(2), t3 time(3), t4 time(4), t5 time(5), t6 time(6), n time(6) not null",
        [
            "'-00:00:01','-00:00:00.1','-00:00:00.01','-838:59:59.5','-00:00:00.0001','-01:00:00.00001',"
            "'-12:34:56.123456','838:59:59.999999'",
            "'838:59:59','00:00:00.9','01:59:59.99','-00:00:00.001','838:59:59.9999','00:00:00','-00:00:00.000001',"
            "'-838:59:59.999999'",
            "'00:00:00','-01:00:01.5','-00:59:59.99','12:00:00.123','0','-100:00:00.5','0','0'",
            "NULL,NULL,NULL,NULL,NULL,NULL,NULL,'-00:00:00.5'",
        ],
    ),
    "labels": (
        "e enum('a','b','ü','it''s','x,y','back\\\\slash','q\"','n\\nl\\r\\Z\\t%') charset latin1, s set('x','ü','it''s','d') charset"
        " latin1, u enum('漢','é') charset ucs2, v set('漢','é','z') charset utf16, w enum('only') not null,"
        f"big enum({','.join(repr(f'm{n}') for n in range(300))}),"
        f"wide set({','.join(repr(f's{n}') for n in range(64))}), p enum('a (b','c)') charset gbk",
        [
            "'ü','x,it\\'s','é','漢,z','only','m299','s0,s63','a (b'",
            "'it\\'s','','漢','','only','m0','','c)'",
            "'x,y','x,ü,it\\'s,d',NULL,NULL,'',NULL,NULL,NULL",
            "'back\\\\slash','d','é','漢,é,z','only','m255','s31,s32','c)'",
            "'n\\nl\\r\\Z\\t%','x',NULL,'z','only','m257',NULL,'a (b'",
            "'q\"',NULL,'漢','é','only','m256',NULL,'a (b'",
            "'nothing','nothing','no','no','no','no','no','no'",
        ],
    ),
    "bits": (
        "b1 bit(1), b8 bit(8), b10 bit(10), b63 bit(63), b64 bit(64), n bit(3) not null",
        ["1,255,b'1000000011',b'1',~0,b'101'", "0,0,0,0,0,0", "NULL,NULL,NULL,NULL,NULL,7"],
    ),
    "geometry": (
        "g geometry, p point, l linestring not null, m multipolygon",
        [
            "point(1,2),point(-1,1e300),linestring(point(0,0),point(1,1)),NULL",
            "NULL,NULL,linestring(point(0,0),point(1,1)),"
            "ST_GeomFromText('MULTIPOLYGON(((0 0,1 0,1 1,0 0)),((5 5,6 5,6 6,5 5)))')",
        ],
    ),
    "addresses": (
        "u uuid, a inet6, b inet4, c uuid not null",
        [
            "'123e4567-e89b-12d3-a456-426655440000','::1','1.2.3.0','00000000-0000-0000-0000-000000000000'",
            "'123e4567-e89b-72d3-a456-426655440000','2001:db8::','0.0.0.0','ffffffff-ffff-ffff-ffff-ffffffffff00'",
            "NULL,'::','255.255.255.255',uuid()",
            "NULL,'::ffff:1.2.3.4',NULL,uuid()",
            "NULL,'::1.2.3.4',NULL,uuid()",
            "NULL,'1:0:0:2::3',NULL,uuid()",
            "NULL,'1:0:2:3:4:5:6:7',NULL,uuid()",
            "NULL,'::1.2.0.0',NULL,uuid()",
        ],
    ),
    "compressed": (
        "v varchar(300) compressed, u varchar(20) charset ucs2 compressed not null, t text compressed charset latin1,"
        "tt tinytext compressed, mt mediumtext compressed, lt longtext compressed, vb varbinary(400) compressed,"
        "b blob compressed, tb tinyblob compressed, lb longblob compressed",
        [
            "'short','漢é','é€','tiny',repeat('ü',9000),repeat('ab',70000),x'00ff80',x'00',x'00ff',repeat(x'00ff',70000)",
            "repeat('ü',150),'','','','','','','','',''",
            "NULL,' a ',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL",
            "repeat('a',300),repeat('語',20),x'818d',repeat('t',255),'m','l',repeat(x'00',400),repeat('z',65535),repeat('z',255),''",
            "concat('a',char(0)),'b',repeat('\t\n\\\\',99),' ',' ',' ',' ',' ',' ',' '",
        ],
    ),
    "hidden": (
        "inv int invisible default 7, iu uuid invisible, i varchar(9) compressed invisible default 'x', g int as (id * 2) virtual,"
        "s varchar(20) as (concat(inv, 'x')) stored, j json, v int",
        ["DEFAULT,DEFAULT,'[]',1", "DEFAULT,DEFAULT,NULL,NULL", 'DEFAULT,DEFAULT,\'{"a":"\\u00fc"}\',-1'],
    ),
}


@pytest.fixture(params=["NO_LOG", "MINIMAL", "FULL"])
def metadata(request, source_1):
    """The amount of metadata about the columns of a table: each amount takes another path through the binding."""
    source_1.run(f"SET GLOBAL binlog_row_metadata={request.param}")
    yield request.param
    source_1.run("SET GLOBAL binlog_row_metadata=NO_LOG")


def test_decodes_as_the_server_prints(source_1, unique, tmp_path, metadata):
    """All kinds in one run: connecting and pulling are expensive, the tables are not."""
    source_1.run(
        f"CREATE DATABASE `{unique}`",
        f"USE `{unique}`",
        LAX,
        *(
            f"CREATE TABLE `{kind}`(id int primary key, {columns}) CHARSET utf8mb4"
            for kind, (columns, _) in CASES.items()
        ),
    )
    begins = end_of(source_1)
    source_1.run(
        f"USE `{unique}`",
        LAX,
        *(
            f"INSERT IGNORE INTO `{kind}` VALUES " + ",".join(f"({number},{row})" for number, row in enumerate(rows))
            for kind, (_, rows) in CASES.items()
        ),
    )
    wanted = {TableId(unique, kind): schema_of(source_1, TableId(unique, kind)) for kind in CASES}
    decoded = changes(source_1, tmp_path, begins, wanted)
    for table, schema in wanted.items():
        shown = selected(source_1, table, schema)
        assert len(shown) == len(CASES[table.name][1])
        found = [values for of, op, values in decoded if of == table and op == INSERT]
        for ours, server in zip(found, shown, strict=True):
            assert ours == server, f"{table} with {metadata}"


def test_addresses_at_random(source_1, unique, tmp_path):
    random = Random(6)
    parts = [0, 0, 0, 0, 1, 0xFFFF, 0xAB, 0x1000]
    literals = ["".join(f"{random.choice(parts):04x}" for _ in range(8)) for _ in range(2000)]
    rows = ",".join(f"({n},x'{value}',x'{value}')" for n, value in enumerate(literals))
    table = TableId(unique, "t")
    source_1.run(f"CREATE DATABASE `{unique}`")
    decoded, shown = round_trip(
        source_1,
        tmp_path,
        table,
        [LAX, "CREATE TABLE t(id int primary key, a inet6, u uuid)", f"INSERT INTO t VALUES {rows}"],
    )
    assert len(shown) == len(literals)
    assert decoded == shown


def test_numbers_at_random(source_1, unique, tmp_path):
    random = Random(20240607)
    doubles = [struct.unpack("<d", random.randbytes(8))[0] for _ in range(3000)]
    doubles += [random.uniform(-1, 1) * 10.0 ** random.randint(-20, 20) for _ in range(3000)]
    doubles += [float(random.randint(-(10**17), 10**17)) for _ in range(1000)]
    doubles = [value for value in doubles if abs(value) < 1e308]
    rows = ",".join(
        f"({n},{v!r},{random.uniform(-1, 1) * 10.0 ** random.randint(-37, 37)!r},{random.uniform(-1, 1) * 10.0 ** random.randint(-9, 30)!r})"
        for n, v in enumerate(doubles)
    )
    table = TableId(unique, "t")
    source_1.run(f"CREATE DATABASE `{unique}`")
    decoded, shown = round_trip(
        source_1,
        tmp_path,
        table,
        [LAX, "CREATE TABLE t(id int primary key, d double, f float, g double(40,6))", f"INSERT INTO t VALUES {rows}"],
    )
    assert len(shown) == len(doubles)
    differing = [(ours, server) for ours, server in zip(decoded, shown, strict=True) if ours != server]
    assert not differing
