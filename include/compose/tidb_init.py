"""Creates the account with which unshard writes into TiDB. It runs at every start of the deployment."""

import os

import pymysql

STATEMENTS = (
    "CREATE USER IF NOT EXISTS 'unshard'@'%'",
    "ALTER USER 'unshard'@'%' IDENTIFIED BY {}",
    "GRANT ALL ON shop.* TO 'unshard'@'%'",
    "GRANT ALL ON unshard_meta.* TO 'unshard'@'%'",
    "SET GLOBAL local_infile = ON",
)


def main() -> None:
    """Run the statements as root; they may run again."""
    address = {"host": os.environ["TIDB_HOST"], "port": int(os.environ["TIDB_PORT"])}
    root = {"user": "root", "password": os.environ.get("TIDB_ROOT_PASSWORD", "")}
    with pymysql.connect(**address, **root, ssl_disabled=True) as connection:
        password = connection.escape(os.environ["TARGET_PASSWORD"])
        for statement in STATEMENTS:
            connection.cursor().execute(statement.format(password))


if __name__ == "__main__":
    main()
