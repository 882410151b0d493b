"""Airflow on loopback: its components, with their own metadata database and users.

All files are in one folder that only its owner can read. Secrets are random, created at every start, and passed in the
environment of the processes. The scheduler imports our units before it forks, and looks for work three times a second.
Log servers are off, so only the API server listens.
"""

import json
import os
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unshard_demo import processes
from unshard_demo.processes import Program
from unshard_demo.servers import free_port

PACKAGES = Path(__file__).absolute().parents[1]
"""The folder that has this package: `include` of a clone, or a link to it where unshard is installed from wheels."""
BUNDLE = [{"name": "unshard", "classpath": "airflow.provider.unshard.UnshardTasksBundle", "kwargs": {}}]
START_SECONDS = 900.0
STOP_SECONDS = 20.0
USER = "admin"
ROLES = {USER: "admin", "operator": "op", "viewer": "viewer"}
"""Users with their roles; all have the same password."""
ATTEMPTS = 30
POLL_SECONDS = 0.3
"""Each look is a request, which takes the API server about 30 ms of CPU."""
COMPONENTS = {
    "api-server": ("api-server", "--workers", "1"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
    "worker": ("celery", "worker", "--skip-serve-logs"),
    "scheduler": ("scheduler", "--skip-serve-logs"),
}
"""The worker starts only with the CeleryExecutor."""
EXECUTOR = "AIRFLOW__CORE__EXECUTOR"
LOCAL_SETTINGS = '''"""Import the modules that tasks need before the scheduler or the worker forks its processes."""

import sys

if {"scheduler", "worker"} & set(sys.argv):
    import unshard_airflow.preload
'''
DATABASE_ARGUMENTS = '''"""Set how long a process waits for SQLite's write lock.

The API server records a user's action on its event loop, and its own open transactions need that loop to end.
So the wait is a deadlock that only the timeout ends; the timeout is short there. In other processes waiting helps.
"""

import os
import sys

is_sqlite = os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].startswith("sqlite")
connect_args = {"timeout": 0.5 if "api-server" in sys.argv else 15.0} if is_sqlite else {}
'''
Connections = Mapping[str, Mapping[str, Any]]
"""Airflow connections by id."""


@dataclass
class Airflow:
    """A running Airflow and its REST API."""

    folder: Path
    port: int
    password: str = field(repr=False)
    programs: tuple[Program, ...]
    environment: Mapping[str, str] = field(repr=False)
    _token: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def api(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Call `/api/v2/<path>` as the administrator; return the answer's JSON, None if it is empty."""
        text = self._answer(method, f"/api/v2/{path}", body)
        return json.loads(text) if text else None

    def page(self, path: str) -> str:
        """Return `/unshard/<path>` as the administrator sees it."""
        return self._answer("GET", f"/unshard/{path}")

    def _answer(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> str:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._call(method, path, body, self._token)
            except urllib.error.HTTPError as error:
                if attempt == ATTEMPTS or error.code not in (401, 500):
                    told = error.read().decode(errors="replace")
                    raise RuntimeError(f"{method} {path}: {error.code} {told}") from error
                if error.code == 401:
                    login = {"username": USER, "password": self.password}
                    self._token = json.loads(self._call("POST", "/auth/token", login))["access_token"]
                else:  # SQLite was busy; the request had no effect
                    time.sleep(min(attempt / 10, 1))
        raise AssertionError("unreachable")

    def has_dag(self, dag: str) -> bool:
        """Whether the DAG processor has parsed that DAG."""
        found = self.api("GET", f"dags?dag_id_pattern={_quoted(dag)}")["dags"]
        return any(entry["dag_id"] == dag for entry in found)

    def await_dags(self, *dags: str, seconds: float = START_SECONDS) -> None:
        self.await_true(lambda: all(map(self.has_dag, dags)), seconds, f"DAGs {', '.join(dags)}")

    def trigger(self, dag: str, conf: Mapping[str, Any] | None = None) -> str:
        wanted = {"dag_run_id": f"demo__{uuid.uuid4()}", "logical_date": None, "conf": dict(conf or {})}
        return str(self.api("POST", f"dags/{_quoted(dag)}/dagRuns", wanted)["dag_run_id"])

    def runs(self, dag: str) -> list[dict[str, Any]]:
        """Return the newest runs of a DAG, oldest first."""
        answer = self.api("GET", f"dags/{_quoted(dag)}/dagRuns?order_by=-run_after&limit=100")
        return list(reversed(answer["dag_runs"]))

    def run(self, dag: str, run: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.api("GET", f"dags/{_quoted(dag)}/dagRuns/{_quoted(run)}")
        return answer

    def tasks(self, dag: str, run: str) -> list[dict[str, Any]]:
        """Return the task instances of a run; each mapped instance separately."""
        answer = self.api("GET", f"dags/{_quoted(dag)}/dagRuns/{_quoted(run)}/taskInstances?limit=200")
        return list(answer["task_instances"])

    def states(self, dag: str, run: str) -> dict[str, str | None]:
        """Return the state of each task instance; mapped ones have names such as `follow[shop-1]`."""
        return {_label(task): task["state"] for task in self.tasks(dag, run)}

    def await_true(self, condition: Any, seconds: float, what: str) -> None:
        """Wait until the condition is true; raises if a component has ended."""
        processes.await_true(condition, seconds, self.programs, what, POLL_SECONDS)

    def kill(self, name: str) -> None:
        """Kill a component with all its processes, as a power failure does, and start it again."""
        (number,) = (index for index, program in enumerate(self.programs) if program.name == name)
        processes.kill(self.programs[number])
        again = _start(name, self.environment, self.folder)
        self.programs = (*self.programs[:number], again, *self.programs[number + 1 :])

    def stop(self) -> None:
        """Stop the scheduler first, so that no task loses the API server, then the rest."""
        processes.stop_all(self.programs, STOP_SECONDS)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None, token: str = "") -> str:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/html"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310  own address
        with urllib.request.urlopen(request, timeout=600) as answer:  # noqa: S310
            return str(answer.read().decode())

    def health(self) -> dict[str, dict[str, Any]]:
        parts: dict[str, dict[str, Any]] = json.loads(self._call("GET", "/api/v2/monitor/health", None))
        return parts

    def _is_healthy(self) -> bool:
        try:
            return all(part["status"] == "healthy" for part in self.health().values())
        except OSError:
            return False


def start_airflow(
    folder: Path, tasks: Path, connections: Connections | None = None, settings: Mapping[str, str] | None = None
) -> Airflow:
    """Start Airflow for the task files in `tasks`; return when all components are healthy.

    `connections` are Airflow connections by id; `settings` are further environment variables.
    """
    port, password = free_port(), secrets.token_urlsafe(12)
    env = prepare_airflow(folder, tasks, connections, {**_addresses(port), **(settings or {})})
    _write_private(folder / "passwords.json", json.dumps(dict.fromkeys(ROLES, password)))
    programs: list[Program] = []
    try:
        for name in components(env[EXECUTOR]):
            programs.append(_start(name, env, folder))
        airflow = Airflow(folder, port, password, tuple(programs), env)
        airflow.await_true(airflow._is_healthy, START_SECONDS, "Airflow is healthy")
    except BaseException:
        for program in reversed(programs):
            processes.stop_program(program, 5)
        raise
    return airflow


def prepare_airflow(
    folder: Path, tasks: Path, connections: Connections | None = None, settings: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Create the home of an Airflow with its metadata database; return the environment for its processes."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    env = _environment(folder) | as_variables(connections or {}) | dict(settings or {})
    env["UNSHARD_TASKS"] = str(tasks.resolve())
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config" / "airflow_local_settings.py").write_text(LOCAL_SETTINGS)
    (folder / "config" / "database_arguments.py").write_text(DATABASE_ARGUMENTS)
    done = folder / "migrated"
    if not done.exists():
        with (folder / "migrate.log").open("ab") as log:
            subprocess.run(
                _airflow("db", "migrate"),
                env=env,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
            )
        done.write_text(f"{time.time():.0f}\n")
    return env


def components(executor: str) -> list[str]:
    """Return the names of the components that Airflow needs with that executor, in the order of their start."""
    return [name for name in COMPONENTS if name != "worker" or executor == "CeleryExecutor"]


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text)


def _start(name: str, env: Mapping[str, str], folder: Path) -> Program:
    return processes.start_program(name, _airflow(*COMPONENTS[name]), env, folder / f"{name}.log", folder)


def _airflow(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "airflow", *arguments]


def _environment(folder: Path) -> dict[str, str]:
    foreign = ("AIRFLOW_", "_AIRFLOW_", "UNSHARD_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    path = [str(each) for each in (PACKAGES, PACKAGES.parent / "plugins", PACKAGES.parent) if each.is_dir()]
    return kept | {
        "AIRFLOW_HOME": str(folder),
        "PYTHONPATH": os.pathsep.join(path),
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(BUNDLE),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH": str(folder / "bundles"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        EXECUTOR: "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "8",
        # A worker that misses the end of its task waits this long before it is free again; each heartbeat is a request.
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{user}:{role}" for user, role in ROLES.items()),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(folder / "passwords.json"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder.resolve() / 'airflow.db'}",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": "database_arguments.connect_args",
        "AIRFLOW__API__SECRET_KEY": secrets.token_urlsafe(48),
        "AIRFLOW__API__ENABLE_SWAGGER_UI": "False",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(64),
        "AIRFLOW__API_AUTH__JWT_ISSUER": "unshard-demo",
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3",
        # A task whose worker is dead is tried again after this time instead of after five minutes.
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "120",
        # On a busy machine the first import of a DAG file compiles Airflow itself.
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
        "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "600",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "30",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "30",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(folder / "logs"),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        "AIRFLOW__LOGGING__UVICORN_LOGGING_LEVEL": "WARNING",
        "NO_COLOR": "1",
    }


def _addresses(port: int) -> dict[str, str]:
    return {
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
    }


def as_variables(connections: Connections) -> dict[str, str]:
    """Return each connection as the environment variable that Airflow reads; ids are upper case there."""
    return {f"AIRFLOW_CONN_{name.upper()}": json.dumps(dict(body)) for name, body in connections.items()}


def _label(task: Mapping[str, Any]) -> str:
    if task["map_index"] < 0:
        return str(task["task_id"])
    return f"{task['task_id']}[{task.get('rendered_map_index') or task['map_index']}]"


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")
