"""include/kubernetes cannot be installed where the tests run, so it is compared with the chart and docker-compose.yaml.

KEYS are keys of `chart/values.yaml` of apache/airflow at d6ba481 (chart 1.19 in development), all of which are in its
schema. Below FREE the chart takes what Kubernetes or Airflow defines.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.configuration import conf

from unshard.config import load_task
from unshard_airflow.provider import OPTIONS

ROOT = Path(__file__).parents[3]
SERVICES = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]
VALUES = yaml.safe_load((ROOT / "include/kubernetes/values.yaml").read_text())
SPARK = {
    (each["kind"], each["metadata"]["name"]): each
    for each in yaml.safe_load_all((ROOT / "include/kubernetes/spark.yaml").read_text())
}
PODS = {name: body["spec"]["template"]["spec"] for (kind, name), body in SPARK.items() if kind == "Deployment"}
PARTS = {"apiServer": "api-server", "dagProcessor": "dag-processor", "triggerer": "triggerer", "workers": "scheduler"}
"""Parts of the chart, with the service of the same task; without Celery the scheduler is the worker."""
KEYS = """
    airflowLocalSettings airflowVersion apiSecretKeySecretName apiServer.args apiServer.extraVolumeMounts
    apiServer.extraVolumes apiServer.resources config createUserJob.enabled dagProcessor.resources
    data.metadataSecretName executor extraEnvFrom fernetKeySecretName images.airflow.repository images.airflow.tag
    jwtSecretName postgresql.enabled scheduler.resources triggerer.persistence.enabled triggerer.resources volumeMounts
    volumes workers.extraVolumeMounts workers.extraVolumes workers.persistence.enabled workers.resources
    workers.terminationGracePeriodSeconds
"""
FREE = {"config", "resources"}


def keys(values: dict[str, Any], above: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict) and key not in FREE:
            yield from keys(value, f"{above}{key}.")
        else:
            yield above + key


def limit(body: dict[str, Any]) -> str:
    """Return the limit of memory as Compose writes it."""
    return str(body["resources"]["limits"]["memory"]).removesuffix("i").lower()


def test_the_chart_has_each_key() -> None:
    assert set(keys(VALUES)) == set(KEYS.split())


def test_airflow_has_each_setting() -> None:
    settings = [(section, key) for section, body in VALUES["config"].items() for key in body]
    known = conf.configuration_description
    assert not [
        (section, key)
        for section, key in settings
        if key not in known.get(section, {}).get("options", {}) and not conf.has_option(section, key)
    ]
    assert VALUES["config"]["unshard"].keys() <= OPTIONS.keys()


def test_settings_and_limits_are_those_of_compose() -> None:
    for part, service in PARTS.items():
        assert limit(VALUES[part]) == SERVICES[service]["mem_limit"], part
    given = SERVICES["scheduler"]["environment"]
    for section, key in (("dag_processor", "dag_bundle_config_list"), ("core", "simple_auth_manager_users")):
        assert VALUES["config"][section][key] == given[f"AIRFLOW__{section}__{key}".upper()]
    for section, key in (("core", "parallelism"), ("workers", "min_heartbeat_interval")):
        assert str(VALUES["config"][section][key]) == given[f"AIRFLOW__{section}__{key}".upper()]
    image = VALUES["images"]["airflow"]
    assert f"{image['repository']}:{image['tag']}" == SERVICES["scheduler"]["image"]


def test_task_files_are_where_the_option_says() -> None:
    """Kubernetes does not allow a folder in the name of a file of a config map."""
    (volume,) = VALUES["volumes"]
    (mount,) = VALUES["volumeMounts"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], VALUES["config"]["unshard"]["tasks_folder"])
    tasks, sources = (each["configMap"] for each in volume["projected"]["sources"])
    folder = ROOT / "include/compose/tasks"
    task = load_task(folder / "orders_merge.yaml")
    assert "items" not in tasks
    assert {item["path"] for item in sources["items"]} == {f"sources/{path.name}" for path in folder.glob("*/*.yaml")}
    assert task.options.storage_path == VALUES["workers"]["extraVolumeMounts"][0]["mountPath"]


@pytest.mark.parametrize("name", PODS)
def test_spark_runs_as_in_compose(name: str) -> None:
    (container,) = PODS[name]["containers"]
    service = SERVICES[name]
    assert (container["image"], container["command"]) == (service["image"], service["entrypoint"])
    assert container["args"] == service["command"]
    assert {each["name"]: each["value"] for each in container.get("env", ())} == service.get("environment", {})
    assert limit(container) == service["mem_limit"]
    mounts = [f"{each['name']}:{each['mountPath']}" for each in container.get("volumeMounts", ())]
    assert mounts == service.get("volumes", [])
    (probe,) = (body["port"] for body in container["readinessProbe"].values())
    assert re.search(rf"\b{probe}\b", str(service["healthcheck"]["test"]))


def test_a_name_that_spark_listens_at_is_that_of_its_pod_and_service() -> None:
    """Kubernetes writes the host name of a pod into its /etc/hosts before the service has an address."""
    for name in ("spark-master", "spark-connect"):
        assert PODS[name]["hostname"] == name
        service = SPARK["Service", name]["spec"]
        assert (service["clusterIP"], service["selector"]) == ("None", {"app": name})
        assert SPARK["Deployment", name]["spec"]["template"]["metadata"]["labels"] == {"app": name}
    assert PODS.keys() == {name for name in SERVICES if name.startswith("spark-")}


def test_only_airflows_workers_reach_the_connect_server() -> None:
    spec = SPARK["NetworkPolicy", "spark"]["spec"]
    within, workers = spec["ingress"]
    assert set(spec["podSelector"]["matchExpressions"][0]["values"]) == PODS.keys()
    assert within == {"from": [{"podSelector": spec["podSelector"]}]}
    assert workers == {
        "from": [{"podSelector": {"matchLabels": {"tier": "airflow", "component": "worker"}}}],
        "ports": [{"port": 15002}],
    }
