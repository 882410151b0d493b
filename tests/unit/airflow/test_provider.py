"""What Airflow reads of the installed provider: its metadata, the options, the bundle and the command."""

import inspect
import json
import os
import shutil
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module, metadata, resources
from pathlib import Path
from time import sleep

import jsonschema
import pytest
from airflow.configuration import conf
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

from unshard import config
from unshard_airflow import airflowcommand, api, bundle, files, options
from unshard_airflow.provider import VERSION, get_provider_info
from unshard_airflow.versions import one_at_a_time

ROOT = Path(__file__).parents[3]
INFO = get_provider_info()
PROJECTS = [
    tomllib.loads((ROOT / name).read_text())["project"] for name in ("pyproject.toml", "plugins/pyproject.toml")
]


def named(path: str) -> object:
    module, _, attribute = path.rpartition(".")
    return getattr(import_module(module), attribute)


def modules() -> list[str]:
    return [
        module
        for kind in ("operators", "hooks", "triggers", "bundles")
        for each in INFO[kind]
        for module in each["python-modules"]
    ]


def test_the_metadata_follow_airflows_schema() -> None:
    schema = json.loads((resources.files("airflow") / "provider_info.schema.json").read_text())
    jsonschema.validate(INFO, schema)


@pytest.mark.parametrize("module", modules())
def test_each_named_module_can_be_imported(module: str) -> None:
    assert import_module(module).__doc__


@pytest.mark.parametrize(
    "path",
    [
        *INFO["notifications"],
        *INFO["extra-links"],
        *INFO["cli"],
        *(each["hook-class-name"] for each in INFO["connection-types"]),
    ],
)
def test_each_named_object_is_there(path: str) -> None:
    assert callable(named(path))


def test_both_wheels_have_the_version_of_the_metadata() -> None:
    assert {project["version"] for project in PROJECTS} == {VERSION}
    assert f"unshard[connect]=={VERSION}" in PROJECTS[1]["dependencies"]


def test_the_entry_points_lead_to_the_metadata_and_the_plugin() -> None:
    points = PROJECTS[1]["entry-points"]
    assert named(points["apache_airflow_provider"]["provider_info"].replace(":", ".")) is get_provider_info
    assert named(points["airflow.plugins"]["unshard"].replace(":", ".")).name == "unshard"  # type: ignore[attr-defined]


def test_airflow_finds_the_installed_provider() -> None:
    names = {point.name for point in metadata.entry_points(group="apache_airflow_provider") if "unshard" in point.value}
    assert names == {"provider_info"}
    assert conf.get("unshard", "spark_masters") == "local[*] yarn"
    hook = ProvidersManagerTaskRuntime().hooks["unshard"]
    assert hook is not None and (hook.hook_name, hook.connection_testable) == (api.UnshardHook.hook_name, True)


def test_an_option_gets_its_value_from_airflow_and_its_variable_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__UNSHARD__STORAGE_PATHS", "/data/unshard")
    assert options.option_value("storage_paths") == "/data/unshard"
    monkeypatch.setenv("UNSHARD_STORAGE_PATHS", "/data/other")
    assert options.option_value("storage_paths") == "/data/other"


def test_the_options_limit_what_a_task_file_may_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = ROOT / "include/tasks/orders_merge.yaml"
    options.task_with_options(path)
    monkeypatch.setitem(os.environ, "UNSHARD_SOURCE_FOLDERS", str(tmp_path))
    monkeypatch.delenv("UNSHARD_SECRET_PREFIXES", raising=False)
    monkeypatch.setenv("AIRFLOW__UNSHARD__SECRET_PREFIXES", "SHOP_")
    assert options.task_with_options(path) == config.load_task(path)
    assert os.environ["UNSHARD_SECRET_PREFIXES"] == "SHOP_"


def test_the_default_folder_of_task_files_is_in_airflow_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSHARD_TASKS", raising=False)
    assert options.tasks_folder() == Path(os.environ.get("AIRFLOW_HOME") or Path("~/airflow").expanduser()) / "unshard"


def test_the_version_of_the_bundle_changes_with_a_task_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UNSHARD_TASKS", str(tmp_path))
    found = bundle.UnshardTasksBundle(name="unshard")
    empty = found.get_current_version()
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "a.yaml").write_text("host: a")
    first = found.get_current_version()
    (tmp_path / "sources" / "a.yaml").write_text("host: b")
    assert len({empty, first, found.get_current_version()}) == 3
    assert sorted(path.name for path in found.path.glob("*.py")) == ["unshard_dags.py", "unshard_task_files.py"]


def test_the_folder_of_a_config_map_has_the_same_paths_and_version_in_each_pod(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The name of the folder with the files, to which Kubernetes links, is the time of the mount."""
    (link := tmp_path / "tasks").mkdir()
    monkeypatch.setenv("UNSHARD_TASKS", str(link))
    for name in ("orders_merge.yaml", "sources"):
        (link / name).symlink_to(Path("..data", name))
    seen = set()
    for time in ("..2026_01", "..2026_02"):
        shutil.copytree(ROOT / "include/tasks", link / time)
        (link / "..data").unlink(missing_ok=True)
        (link / "..data").symlink_to(time)
        (dag,) = (dag for name, dag in files.all_dags().items() if name.startswith("unshard_sync__"))
        seen.add((bundle.UnshardTasksBundle(name="unshard").get_current_version(), dag.get_task("report").task_file))
        shutil.rmtree(link / time)
    ((version, task_file),) = seen
    assert task_file == str(link / "orders_merge.yaml")
    monkeypatch.setenv("UNSHARD_TASKS", str(ROOT / "include/tasks"))
    assert bundle.UnshardTasksBundle(name="unshard").get_current_version() == version


def test_the_command_runs_unshard_with_airflows_connections(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (action,) = airflowcommand.get_cli_commands()
    assert action.name == "unshard"
    with pytest.raises(SystemExit) as end:
        action.func(type("Options", (), {"arguments": ["--version"]}))
    assert end.value.code in (0, None)
    assert capsys.readouterr().out == f"unshard {VERSION}\n"


def test_the_page_describes_each_public_name() -> None:
    page = (ROOT / "docs/api.md").read_text()
    for name in api.__all__:
        assert f"`{name}`" in page
        assert inspect.getdoc(getattr(api, name))


def test_each_thread_gets_the_answer_to_its_own_question() -> None:
    asked: list[int] = []

    def send(number: int) -> int:
        asked.append(number)
        for _ in range(10):
            sleep(0)  # let another thread ask
        return asked[-1]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one_at_a_time(send), range(100))) == list(range(100))
