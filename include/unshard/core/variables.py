"""The environment variables that limit what a task file may name; `unshard.config.allowed` applies them.

Airflow reads this module with its configuration, so it imports nothing.
"""

SECRET_FOLDERS, SECRET_PREFIXES = "UNSHARD_SECRET_FOLDERS", "UNSHARD_SECRET_PREFIXES"
SOURCE_FOLDERS, STORAGE_PATHS = "UNSHARD_SOURCE_FOLDERS", "UNSHARD_STORAGE_PATHS"
SPARK_MASTERS = "UNSHARD_SPARK_MASTERS"
DEFAULTS = {
    SECRET_FOLDERS: "/run/secrets/unshard /etc/ssl/certs",
    SECRET_PREFIXES: "UNSHARD_",
    SPARK_MASTERS: "local[*] yarn",
}
