"""US-20xx: answers of a server, source or target. US-21xx: columns and values that unshard does not support."""

from unshard.errors.base import Scope, ServerError, SourceError


class ServerUnreachable(ServerError, code="US-2001", transient=True):
    """No server answers at the host and port, or the host name is unknown."""

    template = "cannot reach {where} at {server}: {server_message}"
    hint = (
        "check host and port in the source or task file, that the server runs and listens there,"
        " and the firewall in between"
    )


class AccessDenied(ServerError, code="US-2002"):
    """The server rejects the user or the password, or unshard does not support the account's authentication plugin."""

    template = "{where} refuses to let {server} in: {server_message}"
    hint = (
        "check user, password and the account's host part; the password comes from conn-id, the environment or the"
        " file; for an account that needs a certificate (REQUIRE X509), set ssl-cert in the security block"
    )


class MissingPrivilege(ServerError, code="US-2003"):
    """The account exists but lacks a privilege, or may not connect from this host.

    Remedy: Grant the privilege that the message names, or the one that the quoted statement needs.
    `docs/operations.md` lists all privileges for sources and target.
    """

    template = "{server} lacks a privilege on {where}: {server_message}"
    hint = "grant the privilege that the server names; docs/operations.md has the whole list"


class UnknownDatabase(ServerError, code="US-2004"):
    """A statement names a schema that does not exist on the server."""

    template = "a schema is missing on {where} at {server}: {server_message}"
    hint = "create the schema or correct its name in the task file"


class ConnectionLost(ServerError, code="US-2005", transient=True):
    """The connection broke during a statement.

    The server stopped or restarted, killed the session, or a packet was larger than `max_allowed_packet`.
    """

    template = "the connection to {where} at {server} broke: {server_message}"
    hint = "run it again; if it repeats, read the server's error log and check wait_timeout and max_allowed_packet"


class ServerFull(ServerError, code="US-2006", transient=True):
    """`max_connections`, the account's own limit or another resource of the server is used up."""

    template = "{where} at {server} has no room for more: {server_message}"
    hint = "raise max_connections or the account's limit, or lower the threads in the task file"


class ServerBusy(ServerError, code="US-2007", transient=True):
    """A deadlock or a lock wait timeout ended the statement; on TiDB also a write conflict or a lost lock.

    Consequence: The server rolled the transaction back.
    """

    template = "a conflict or an overload ended a statement on {where} at {server}: {server_message}"
    hint = "run it again; if it repeats, find the session that holds the locks with SHOW PROCESSLIST"


class StatementRefused(ServerError, code="US-2008"):
    """The server rejected a statement of unshard with an error that has no code here."""

    errno: int
    statement: str
    template = "{where} at {server} refuses with error {errno}, {server_message}, the statement: {statement}"
    hint = "check that unshard supports the server's flavor and version (docs/limits.md); if it does, report this error"


class ServerReadOnly(StatementRefused, code="US-2365", transient=True):
    """The server, or the session of the account, is read-only, so it rejected a statement that writes.

    This happens during a failover of the target, on a replica, and on a server whose administrator has set
    `read_only`, `super_read_only`, `tidb_restricted_read_only` or `tidb_super_read_only`.

    Consequence: Nothing was written. unshard tries again.
    Remedy: Turn the setting off, or correct the address if it leads to a replica.
    """

    template = "{where} at {server} is read-only: {server_message}"
    hint = (
        "turn off the setting that makes it read-only (read_only, super_read_only, tidb_restricted_read_only or"
        " tidb_super_read_only; transaction_read_only of the session), or correct host and port if it is a replica"
    )


class SessionVariableRefused(ServerError, code="US-2009"):
    """The server does not know a variable of the `session` block, or rejects its value."""

    variable: str
    template = "{where} at {server} refuses the session variable {variable}: {server_message}"
    hint = "correct or remove it in the session block of the source or task file"


class TableMissing(ServerError, code="US-2010"):
    """A table was dropped or renamed while unshard used it, or never existed."""

    template = "a table is missing on {where} at {server}: {server_message}"
    hint = "check whether it was dropped or renamed, and check the allow list of the task file"


class TableUnsupported(SourceError, code="US-2011"):
    """unshard cannot follow the rows of this kind of table.

    A system-versioned table may keep its history by transactions (a period of BIGINT); MariaDB logs its changes as
    statements.
    """

    table: str
    reason: str
    template = "the table {table} cannot be merged: {reason}"
    hint = "exclude it with the block-allow-list of the task file, or change the table"


class TlsFailed(ServerError, code="US-2012"):
    """The TLS connection failed.

    The task asks for TLS and the server does not offer it; the server's certificate comes from another authority, has
    expired, or belongs to another host; or the server accepts only TLS connections.

    Consequence: The step stops. unshard sent no data to the server.
    Remedy: Compare with `openssl s_client -starttls mysql -connect HOST:PORT -CAfile CA`. If the certificates have no
    host names, such as those that MySQL generates, set `verify: ca`, or name the common name in `cert-allowed-cn`.
    """

    template = "no secure connection to {where} at {server}: {server_message}"
    hint = (
        "check the security block: ssl-ca must have issued the server's certificate, and its name must be the host's,"
        " unless verify is ca or cert-allowed-cn names it"
    )


class FileRequested(ServerError, code="US-2013"):
    """The server answered a statement with a request for a file of the client (LOAD DATA LOCAL).

    unshard never asks a server to load a file, so the server, or someone between it and unshard, tries to read files of
    the machine. unshard sends only rows, only in answer to its own LOAD DATA LOCAL, and from memory.

    Consequence: unshard sent nothing and closed the connection.
    Remedy: Find out who answers at the address. Set `ssl-ca` in the `security` block, so that no other host can answer
    in place of the server. If the server itself sent the request, it is not under your control any more.
    """

    template = "{where} at {server} tries to read a file of this machine: {server_message}"
    hint = "find out who answers at this address, and set ssl-ca in the security block, so that only your server can"


class PasswordRequested(ServerError, code="US-2014"):
    """The server requests the password in a form that it, or someone between it and unshard, could read.

    An account's authentication plugin either proves that the client knows the password, or sends the password
    (`mysql_clear_password`, `dialog`, `sha256_password`, and the first login with `caching_sha2_password` after a start
    of the server). unshard sends a password only to a server whose certificate it has verified. On loopback it also
    sends it with the latter two.

    Consequence: unshard sent no password and closed the connection.
    Remedy: Set `ssl-ca` in the `security` block. For the certificates that MySQL generates, this is the file `ca.pem`
    of its data directory, with `verify: ca`. Or give the account a plugin that sends no password
    (`mysql_native_password`, `ed25519`).
    """

    template = "{where} at {server} is not verified and may not get the password: {server_message}"
    hint = (
        "set ssl-ca in the security block (docs/operations.md, TLS), or give the account the plugin"
        " mysql_native_password or ed25519"
    )


class ProtocolBroken(ServerError, code="US-2015"):
    """The bytes that the server sent contradict the protocol of MySQL.

    Consequence: unshard closed the connection. Committed work stays.
    Remedy: Check that a supported server listens at the address, and not a proxy or another program.
    """

    template = "{where} at {server} does not keep to the protocol of MySQL: {server_message}"
    hint = "check that host and port belong to a supported server (docs/limits.md), and what is between it and unshard"


class UnknownColumnType(SourceError, code="US-2101"):
    """A column has a type that unshard cannot compare, dump or write."""

    column: str
    column_type: str
    template = "column {column} has the type {column_type}, which is not supported"
    hint = "exclude the table with the block-allow-list, or change the column's type"


class ValueNotCanonical(SourceError, code="US-2102", scope=Scope.INTERNAL):
    """A value reached the comparison in a form that its type never prints. This is a defect of unshard.

    Consequence: Nothing is written.
    """

    column: str
    column_type: str
    template = "a value of column {column} ({column_type}) is not in the form in which its type is printed"
    hint = "this is a defect: report it with the structure of the table"


class JsonNumberLost(SourceError, code="US-2103"):
    """A number in a JSON value has more digits than the target's JSON can hold.

    MySQL's JSON holds a DECIMAL of up to 65 digits, 30 of them after the point, and MariaDB's any text. TiDB's JSON has
    only integers of 64 bits and doubles, which keep 15 to 17 digits.

    Consequence: The row is not written. It is treated as a value that does not fit (US-6002).
    Remedy: Make the target's column a text (LONGTEXT), or change the number at the source, then run the task again.
    """

    column: str
    number: str
    path: str
    template = "the JSON of the target cannot hold all digits of the number {number} ({path} in column {column})"
    hint = "make the target's column LONGTEXT, or change the number at the source, then run the task again"
