"""US-20xx: answers of a server, source or target. US-21xx: columns and values that unshard does not support."""

from unshard.errors.base import Scope, ServerError, SourceError


class ServerUnreachable(ServerError, code="US-2001", transient=True):
    template = "cannot reach {where} at {server}: {server_message}"
    hint = (
        "check host and port in the source or task file, that the server runs and listens there,"
        " and the firewall in between"
    )


class AccessDenied(ServerError, code="US-2002"):
    template = "{where} refuses to let {server} in: {server_message}"
    hint = (
        "check user, password and the account's host part; the password comes from conn-id, the environment or the"
        " file; for an account that needs a certificate (REQUIRE X509), set ssl-cert in the security block"
    )


class MissingPrivilege(ServerError, code="US-2003"):
    template = "{server} lacks a privilege on {where}: {server_message}"
    hint = "grant the privilege that the server names; docs/operations.md has the whole list"


class UnknownDatabase(ServerError, code="US-2004"):
    template = "a schema is missing on {where} at {server}: {server_message}"
    hint = "create the schema or correct its name in the task file"


class ConnectionLost(ServerError, code="US-2005", transient=True):
    template = "the connection to {where} at {server} broke: {server_message}"
    hint = "run it again; if it repeats, read the server's error log and check wait_timeout and max_allowed_packet"


class ServerFull(ServerError, code="US-2006", transient=True):
    template = "{where} at {server} has no room for more: {server_message}"
    hint = "raise max_connections or the account's limit, or lower the threads in the task file"


class ServerBusy(ServerError, code="US-2007", transient=True):
    template = "a conflict or an overload ended a statement on {where} at {server}: {server_message}"
    hint = "run it again; if it repeats, find the session that holds the locks with SHOW PROCESSLIST"


class StatementRefused(ServerError, code="US-2008"):
    errno: int
    statement: str
    template = "{where} at {server} refuses with error {errno}, {server_message}, the statement: {statement}"
    hint = "check that unshard supports the server's flavor and version (docs/limits.md); if it does, report this error"


class ServerReadOnly(StatementRefused, code="US-2365", transient=True):
    template = "{where} at {server} is read-only: {server_message}"
    hint = (
        "turn off the setting that makes it read-only (read_only, super_read_only, tidb_restricted_read_only or"
        " tidb_super_read_only; transaction_read_only of the session), or correct host and port if it is a replica"
    )


class SessionVariableRefused(ServerError, code="US-2009"):
    variable: str
    template = "{where} at {server} refuses the session variable {variable}: {server_message}"
    hint = "correct or remove it in the session block of the source or task file"


class TableMissing(ServerError, code="US-2010"):
    template = "a table is missing on {where} at {server}: {server_message}"
    hint = "check whether it was dropped or renamed, and check the allow list of the task file"


class TableUnsupported(SourceError, code="US-2011"):
    table: str
    reason: str
    template = "the table {table} cannot be merged: {reason}"
    hint = "exclude it with the block-allow-list of the task file, or change the table"


class TlsFailed(ServerError, code="US-2012"):
    template = "no secure connection to {where} at {server}: {server_message}"
    hint = (
        "check the security block: ssl-ca must have issued the server's certificate, and its name must be the host's,"
        " unless verify is ca or cert-allowed-cn names it"
    )


class FileRequested(ServerError, code="US-2013"):
    template = "{where} at {server} tries to read a file of this machine: {server_message}"
    hint = "find out who answers at this address, and set ssl-ca in the security block, so that only your server can"


class PasswordRequested(ServerError, code="US-2014"):
    template = "{where} at {server} is not verified and may not get the password: {server_message}"
    hint = (
        "set ssl-ca in the security block (docs/operations.md, TLS), or give the account the plugin"
        " mysql_native_password or ed25519"
    )


class ProtocolBroken(ServerError, code="US-2015"):
    template = "{where} at {server} does not keep to the protocol of MySQL: {server_message}"
    hint = "check that host and port belong to a supported server (docs/limits.md), and what is between it and unshard"


class UnknownColumnType(SourceError, code="US-2101"):
    column: str
    column_type: str
    template = "column {column} has the type {column_type}, which is not supported"
    hint = "exclude the table with the block-allow-list, or change the column's type"


class ValueNotCanonical(SourceError, code="US-2102", scope=Scope.INTERNAL):
    column: str
    column_type: str
    template = "a value of column {column} ({column_type}) is not in the form in which its type is printed"
    hint = "this is a defect: report it with the structure of the table"


class JsonNumberLost(SourceError, code="US-2103"):
    column: str
    number: str
    path: str
    template = "the JSON of the target cannot hold all digits of the number {number} ({path} in column {column})"
    hint = "make the target's column LONGTEXT, or change the number at the source, then run the task again"
