"""PyMySQL has the private parts that adapters/pymysqlprivate.py uses; a version that changes them fails here."""

import inspect
import socket

import pymysql
import pytest
from pymysql.connections import Connection, MysqlPacket, MySQLResult
from pymysql.constants.COMMAND import COM_QUERY
from pymysql.err import raise_mysql_exception
from pymysql.protocol import FieldDescriptorPacket, OKPacketWrapper

from unshard.adapters import mysql, pymysqlprivate
from unshard.core.model import Server

SIGNATURES = {
    Connection._execute_command: "(self, command, sql)",
    Connection._read_packet: "(self, packet_type=<class 'pymysql.protocol.MysqlPacket'>)",
    Connection._write_bytes: "(self, data)",
    Connection._create_ssl_ctx: "(self, sslp)",
    Connection.write_packet: "(self, payload)",
    Connection._request_authentication: "(self)",
    Connection.connect: "(self, sock=None)",
    Connection._read_bytes: "(self, num_bytes)",
    Connection._read_ok_packet: "(self)",
    Connection._read_query_result: "(self, unbuffered=False)",
    Connection._get_server_information: "(self)",
    Connection._process_auth: "(self, plugin_name, auth_packet, handler=None)",
    Connection.query: "(self, sql, unbuffered=False)",
    MySQLResult._get_descriptions: "(self)",
    MySQLResult._read_row_from_packet: "(self, packet)",
    MySQLResult._read_rowdata_packet_unbuffered: "(self)",
    Connection.set_character_set: "(self, charset, collation=None)",
    MysqlPacket.read_length_encoded_integer: "(self)",
    MysqlPacket.is_eof_packet: "(self)",
    MysqlPacket.is_load_local_packet: "(self)",
    OKPacketWrapper.__init__: "(self, from_packet)",
    FieldDescriptorPacket.__init__: "(self, data, encoding)",
    raise_mysql_exception: "(data)",
}


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda function: function.__qualname__)
def test_signature(function) -> None:
    assert str(inspect.signature(function)) == SIGNATURES[function]


def test_a_command_is_one_packet_after_which_the_answer_has_number_1() -> None:
    source = inspect.getsource(Connection._execute_command)
    assert "self._next_seq_id = 1" in source and "self._write_bytes(" in source
    assert COM_QUERY == 3


def test_answers_are_read_from_a_buffered_stream_over_the_socket() -> None:
    source = inspect.getsource(Connection)
    assert 'self._rfile = sock.makefile("rb")' in source and "self._sock = sock" in source
    assert "self._rfile.read(" in inspect.getsource(Connection._read_bytes)


def test_a_description_is_read_once_and_those_that_differ_are_told_apart() -> None:
    assert "_read_packet(FieldDescriptorPacket)" in inspect.getsource(MySQLResult._get_descriptions)
    texts = [b"def", b"d", b"t", b"t", b"name", b"name"]
    data = (
        b"".join(bytes((len(text),)) + text for text in texts) + b"\x0c\x2d\x00\x40\x00\x00\x00\xfd\x00\x00\x00\x00\x00"
    )
    first, other = (pymysqlprivate._column(each, "utf8") for each in (data, data.replace(b"\xfd", b"\x03")))
    assert first is pymysqlprivate._column(bytes(data), "utf8")
    assert (first.name, first.type_code, other.type_code) == ("name", 253, 3)


def test_the_context_of_tls_is_made_by_the_method_that_we_override() -> None:
    assert "self.ctx = self._create_ssl_ctx(ssl)" in inspect.getsource(Connection.__init__)
    assert Connection(defer_connect=True).ctx is not None


def test_the_character_set_is_set_by_the_method_that_we_override() -> None:
    assert "self.set_character_set(" in inspect.getsource(Connection.connect)


def test_the_login_begins_with_the_fields_to_which_we_add_capabilities() -> None:
    source = inspect.getsource(Connection._request_authentication)
    assert '"<iIB23s", client_flags, MAX_PACKET_LEN, charset_id, b""' in source
    assert "self._get_server_information()" in inspect.getsource(Connection.connect)
    assert "self.server_capabilities" in inspect.getsource(Connection._get_server_information)


def test_what_a_guarded_connection_relies_on() -> None:
    login = inspect.getsource(Connection._request_authentication)
    assert "auth_packet = self._process_auth(" in login and "self._auth_plugin_name" in login
    assert "n = pkt.read_uint8()" in inspect.getsource(pymysql._auth.caching_sha2_password_auth)
    assert "self._read_bytes(bytes_to_read)" in inspect.getsource(Connection._read_packet)
    assert "self._sock.sendall(data)" in inspect.getsource(Connection._write_bytes)
    reading = inspect.getsource(Connection._read_query_result)
    for line in ("self._result = None", "MySQLResult(self)", "init_unbuffered_query()", ".read()", "server_status"):
        assert line in reading


def test_what_an_answer_says() -> None:
    answer = OKPacketWrapper(MysqlPacket(b"\x00\x02\x00\x02\x00\x03\x00Records: 2", "utf8mb4"))
    assert (answer.affected_rows, answer.warning_count, bytes(answer.message)) == (2, 3, b"Records: 2")


def test_an_error_packet_becomes_the_error_of_the_driver() -> None:
    with pytest.raises(pymysql.err.ProgrammingError) as error:
        raise_mysql_exception(b"\xff\x7a\x04#42S02no such table")
    assert error.value.args == (1146, "no such table")


def test_a_server_that_accepts_and_says_nothing_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = Server("127.0.0.1", silent.getsockname()[1], "u", "")
        with pytest.raises(pymysql.err.OperationalError, match="timed out"):
            mysql.driver_connection(server, connect_timeout=0.05)


def test_the_limits_of_the_driver_are_set_as_we_rely_on() -> None:
    connecting = inspect.getsource(Connection.connect)
    assert "sock.settimeout(self._read_timeout)" in connecting and "SO_KEEPALIVE, 1" in connecting
    assert "self._sock.settimeout(self._write_timeout)" in inspect.getsource(Connection._write_bytes)
