"""docker-compose.yaml cannot be started where the tests run, so all that can be checked without an engine is."""

import json
import re
from importlib import metadata
from pathlib import Path

import check_jsonschema
import jsonschema
import pytest
import yaml

from tests.versions import MYSQL
from unshard.adapters.spark import ARENAS, REMEMBERED, UNIX_SOCKETS
from unshard.config import load_task
from unshard_airflow.provider import OPTIONS

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docker-compose.yaml").read_text()
COMPOSE = yaml.safe_load(TEXT)
SCHEMA = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor" / "compose-spec.json"
SERVICES = COMPOSE["services"]
IMAGE = COMPOSE["x-image"]["build"]["dockerfile_inline"]
AIRFLOW = {name: body for name, body in SERVICES.items() if "AIRFLOW__CORE__EXECUTOR" in body.get("environment", {})}


def volumes() -> list[str]:
    return [volume for body in SERVICES.values() for volume in body.get("volumes", [])]


def test_file_follows_the_compose_schema() -> None:
    jsonschema.validate(COMPOSE, json.loads(SCHEMA.read_text()))


def test_schema_refuses_an_unknown_key() -> None:
    """The check above can fail."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"services": {"a": {"imagee": "x"}}}, json.loads(SCHEMA.read_text()))


def test_every_part_of_the_deployment_is_there() -> None:
    assert set(SERVICES) == {
        "postgres",
        "airflow-init",
        "api-server",
        "scheduler",
        "dag-processor",
        "triggerer",
        "spark-master",
        "spark-worker",
        "spark-connect",
        "source-1",
        "source-2",
        "tidb",
        "tidb-init",
    }


@pytest.mark.parametrize("name", SERVICES)
def test_image_is_pinned(name: str) -> None:
    image, _, tag = SERVICES[name]["image"].rpartition(":")
    assert image and re.match(r"v?\d+\.\d+", tag), SERVICES[name]["image"]


def test_servers_have_the_versions_of_the_tests() -> None:
    built = re.search(r"TiDBReleaseVersion=(v[\d.]+)", (ROOT / ".ci/tidb/build").read_text())
    assert built and SERVICES["tidb"]["image"] == f"pingcap/tidb:{built[1]}"
    for name in ("source-1", "source-2"):
        assert SERVICES[name]["image"].startswith(MYSQL.name.replace("-", ":") + ".")


def test_up_waits_for_each_service() -> None:
    """Compose takes the end of a service for a failure unless another service waits for its success."""
    awaited = {
        (name, condition["condition"])
        for body in SERVICES.values()
        for name, condition in body.get("depends_on", {}).items()
    }
    ends = {name for name, body in SERVICES.items() if body["restart"] == "no"}
    assert {name for name, condition in awaited if condition == "service_completed_successfully"} == ends
    assert {condition for name, condition in awaited if name not in ends} == {"service_healthy"}


@pytest.mark.parametrize("name", ["api-server", "scheduler", "dag-processor", "triggerer"])
def test_airflow_starts_after_what_its_tasks_need(name: str) -> None:
    assert SERVICES[name]["depends_on"].keys() == {"airflow-init", "tidb-init", "source-1", "source-2"}


def test_base_image_has_the_airflow_that_is_pinned() -> None:
    version = re.search(r"FROM apache/airflow:([\d.]+)-python3\.11", IMAGE)
    assert version and version[1] == metadata.version("apache-airflow")


def test_paths_exist() -> None:
    copied = [
        word for line in re.findall(r"^COPY (.+) /", IMAGE, re.MULTILINE) for word in line.split() if word[:2] != "--"
    ]
    mounted = [volume.split(":")[0] for volume in volumes() if volume.startswith("./")]
    assert {"dags", "plugins", "spark_jobs", "include", "requirements.txt"} <= set(copied)
    assert mounted
    inside = [path.rstrip(".") for path in re.findall(r"/opt/unshard/([\w/.]+)", TEXT)]
    assert not [path for path in copied + mounted + inside if not (ROOT / path).exists()]


def test_named_volumes_are_declared() -> None:
    assert {volume.split(":")[0] for volume in volumes() if not volume.startswith("./")} == set(COMPOSE["volumes"])


def test_nothing_is_published_beyond_loopback() -> None:
    published = [port for body in SERVICES.values() for port in body.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_long_running_services_have_health_checks_and_a_limit_of_memory() -> None:
    lasting = [body for body in SERVICES.values() if body["restart"] != "no"]
    assert lasting and all({"healthcheck", "mem_limit"} <= body.keys() for body in lasting)


def test_secrets_come_from_the_env_file() -> None:
    example = (ROOT / "include/compose/env.example").read_text()
    declared = set(re.findall(r"^(\w+)=", example, re.MULTILINE))
    used = set(re.findall(r"(?<!\$)\$\{(\w+)", TEXT))
    assert used == declared
    assert not re.findall(r"^\w+=(.+)$", example, re.MULTILINE), "the example must hold no value"


def test_airflow_settings_exist() -> None:
    from airflow.configuration import conf

    keys = {key for body in AIRFLOW.values() for key in body["environment"] if key.startswith("AIRFLOW__")}
    assert len(keys) > 10
    for key in keys:
        section, option = key.removeprefix("AIRFLOW__").lower().split("__", 1)
        documented = conf.configuration_description.get(section, {}).get("options", {})
        # The simple auth manager's options are documented under [core].
        assert option in documented or conf.has_option(section, option), key


def test_airflow_commands_exist() -> None:
    from airflow.cli.cli_parser import airflow_commands

    commands = {command.name for command in airflow_commands}
    for name in ("api-server", "scheduler", "dag-processor", "triggerer"):
        assert SERVICES[name]["command"] in commands
    assert "airflow db migrate" in SERVICES["airflow-init"]["command"][0]


def test_spark_programs_and_jars_are_in_the_package() -> None:
    import pyspark

    home = Path(pyspark.__file__).parent
    for name in ("spark-master", "spark-worker", "spark-connect"):
        assert (home / "bin" / SERVICES[name]["entrypoint"][0]).exists()
    jars = {jar.name for jar in (home / "jars").glob("*.jar")}
    assert any(jar.startswith("spark-connect_") for jar in jars)
    assert any(jar.startswith("spark-core_") for jar in jars)


def test_own_options_are_options_of_the_provider() -> None:
    keys = set(re.findall(r"AIRFLOW__UNSHARD__(\w+)", TEXT))
    assert keys and {key.lower() for key in keys} <= OPTIONS.keys()


def test_connections_are_those_of_the_task_file() -> None:
    task = load_task(ROOT / "include/compose/tasks/orders_merge.yaml")
    named = {task.target.conn_id, task.options.spark_connection, task.options.bulk_connection}
    named |= {instance.source.endpoint.conn_id for instance in task.instances}
    given = {key.removeprefix("AIRFLOW_CONN_").lower() for key in re.findall(r"AIRFLOW_CONN_\w+", TEXT)}
    assert named == given


def test_connect_server_has_our_settings_and_the_manuals_name_them() -> None:
    service = SERVICES["spark-connect"]
    given = dict(text.split("=", 1) for text in service["command"] if "=" in text)
    assert given.items() >= {*REMEMBERED.items(), UNIX_SOCKETS} and service["environment"].items() >= {ARENAS}
    manual = (ROOT / "docs" / "operations.md").read_text()
    assert not [f"{name}={value}" for name, value in (*REMEMBERED.items(), ARENAS) if f"{name}={value}" not in manual]
    assert "=".join(UNIX_SOCKETS) in (ROOT / "docs" / "install.md").read_text()
