"""Rows as bytes: lines of LOAD DATA, value lists of INSERT, and parameters of MariaDB's COM_STMT_BULK_EXECUTE."""
