"""A task file cannot send secrets of the process elsewhere (docs/security.md)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from unshard.config import Endpoint, environment_connections, load_task, resolve
from unshard.config.allowed import allowed_spark_connection, storage
from unshard.errors import UnshardError
from unshard.errors.config import ConnectionInvalid, NotAllowed

SECRET = "hunter2"
TASK = """name: shop
task-mode: all
target-database: {host: t, user: u, password-env: UNSHARD_P}
mysql-instances: [{source-id: s1}]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a task file and, beside it, the only folder of secrets."""
    (tmp_path / "tasks/sources").mkdir(parents=True)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "tasks/task.yaml").write_text(TASK)
    monkeypatch.setenv("UNSHARD_SECRET_FOLDERS", str(tmp_path / "secrets"))
    return tmp_path


def endpoint(folder: Path, server: str) -> Endpoint:
    (folder / "tasks/sources/s1.yaml").write_text(f"source-id: s1\nfrom: {{{server}}}\n")
    return load_task(folder / "tasks/task.yaml").instances[0].source.endpoint


def refusal(folder: Path, server: str) -> str:
    with pytest.raises(UnshardError) as caught:
        resolve(endpoint(folder, server), environment_connections)
    assert SECRET not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "key",
    [
        "host: evil",
        "port: 3307",
        "user: other",
        "host: evil, port: 1, user: u",
        "security: {verify: none}",
        "security: {ssl-ca: evil.pem}",
        "security: {cert-allowed-cn: [evil]}",
    ],
)
def test_nothing_redirects_a_connection(folder: Path, key: str) -> None:
    assert refusal(folder, f"conn-id: shop, {key}").startswith("[US-1013] ")
    found = resolve(Endpoint("evil", 1, "other", conn_id="shop"), lambda _: {"host": "h", "login": "u"})
    assert (found.host, found.port, found.user) == ("h", 3306, "u")


@pytest.mark.parametrize("kind", ["postgres", "http", "aws", "spark", "ssh", "mysqlx", "MYSQL "])
def test_only_connections_of_type_mysql_are_servers(kind: str) -> None:
    def found(_: str) -> Mapping[str, Any]:
        return {"conn_type": kind, "host": "h", "login": "u", "password": SECRET}

    with pytest.raises(ConnectionInvalid, match="not of the type mysql") as caught:
        resolve(Endpoint(None, None, None, conn_id="c"), found)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("name", ["HOME", "AIRFLOW_CONN_SHOP", "AIRFLOW__CORE__FERNET_KEY", "AWS_SECRET_ACCESS_KEY"])
def test_variables_with_passwords_have_a_prefix(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, SECRET)
    told = refusal(folder, f"host: h, user: u, password-env: {name}")
    assert told.startswith("[US-1040] ") and name in told and "UNSHARD_SECRET_PREFIXES" in told
    monkeypatch.setenv("UNSHARD_SECRET_PREFIXES", f"SHOP_ {name}")
    assert resolve(endpoint(folder, f"host: h, user: u, password-env: {name}"), {}.get).password == SECRET


KEYS = {
    "password": "password-file: {}",
    "key": "security: {{ssl-cert: {inside}, ssl-key: {}}}",
    "certificate": "security: {{ssl-cert: {}, ssl-key: {inside}}}",
    "authority": "security: {{ssl-ca: {}}}",
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_files_with_secrets_are_in_a_folder_of_their_own(folder: Path, key: str) -> None:
    inside, outside = folder / "secrets/p", folder / "other"
    inside.write_text(SECRET)
    outside.write_text(SECRET)
    (folder / "secrets/link").symlink_to(outside)
    (folder / "secrets-of-others").mkdir()
    (folder / "secrets-of-others/p").write_text(SECRET)
    for path in ("other", "secrets/../other", "secrets/link", "secrets-of-others/p"):
        told = refusal(folder, "host: h, user: u, " + key.format(folder / path, inside=inside))
        assert told.startswith("[US-1040] ") and "UNSHARD_SECRET_FOLDERS" in told
    (folder / "tasks/link").symlink_to(inside)
    for path in ("secrets/p", "tasks/link"):
        resolve(endpoint(folder, "host: h, user: u, " + key.format(folder / path, inside=inside)), {}.get)


def test_without_the_variable_no_file_of_the_machine_is_a_secret(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSHARD_SECRET_FOLDERS")
    for path in ("/etc/passwd", "/proc/self/environ", "/run/secrets/kubernetes.io/serviceaccount/token"):
        assert refusal(folder, f"host: h, user: u, password-file: {path}").startswith("[US-1040] ")
    assert "[US-1025]" in refusal(folder, "host: h, user: u, password-file: /run/secrets/unshard/none")


def test_files_of_a_connection_are_of_its_author(folder: Path) -> None:
    (folder / "ca").write_text("PEM")
    found = {"host": "h", "login": "u", "extra": {"ssl": {"ca": str(folder / "ca")}}}
    server = resolve(Endpoint(None, None, None, conn_id="c"), lambda _: found)
    assert server.tls is not None and server.tls.ca == "PEM"


def test_source_files_are_near_the_task_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint(folder, "host: h, user: u")
    file, near, far = folder / "tasks/task.yaml", folder / "sources/s1.yaml", folder / "secrets/s1.yaml"
    near.parent.mkdir()
    (folder / "tasks/sources/s1.yaml").rename(near)
    for path in (near, "../sources/s1.yaml"):
        file.write_text(f"{TASK}unshard: {{sources: [{path}]}}\n")
        assert load_task(file).sources == ("s1",)
    near.rename(far)
    near.symlink_to(far)
    for path in (far, "../secrets/s1.yaml", near):
        file.write_text(f"{TASK}unshard: {{sources: [{path}]}}\n")
        with pytest.raises(NotAllowed, match="UNSHARD_SOURCE_FOLDERS"):
            load_task(file)
    monkeypatch.setenv("UNSHARD_SOURCE_FOLDERS", str(far.parent))
    assert load_task(file).sources == ("s1",)


@pytest.mark.parametrize("master", ["sc://evil:15002", "spark://evil:7077", "k8s://https://evil", "mesos://evil"])
def test_passwords_go_to_no_spark_that_a_file_names(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (master, "sc://127.0.0.1@evil:1", "sc://127.0.0.1:1,evil:2", "sc://127.0.0.1.evil:1"):
        with pytest.raises(NotAllowed, match="UNSHARD_SPARK_MASTERS"):
            allowed_spark_connection(wrong)
    for right in ("local", "local[2,3]", "yarn", "sc://127.0.0.1:15002", "spark://localhost:7077", "spark_windows"):
        assert allowed_spark_connection(right) == right
    monkeypatch.setenv("UNSHARD_SPARK_MASTERS", f"sc://other:1 {master}")
    assert allowed_spark_connection(master) == master


def test_places_of_rows_can_be_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert storage("s3://any/x") == "s3://any/x"
    monkeypatch.setenv("UNSHARD_STORAGE_PATHS", f"{tmp_path / 'rows'} s3://ours/a")
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows/link").symlink_to(tmp_path)
    for right in (str(tmp_path / "rows"), str(tmp_path / "rows/x"), "s3://ours/a", "s3://ours/a/b"):
        assert storage(right) == right
    for wrong in (str(tmp_path), str(tmp_path / "rows/link/x"), "s3://ours/ab", "s3://ours", "webhdfs://h:1/a"):
        with pytest.raises(NotAllowed, match="UNSHARD_STORAGE_PATHS"):
            storage(wrong)
