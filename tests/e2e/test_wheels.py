"""The two wheels have all files of the packages, and nothing else; `make matrix` installs and uses them."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]


def built(part: str, folder: Path) -> set[str]:
    """Build one wheel, and return the names of its files without those of the metadata."""
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "build", "--wheel", "--quiet", "--out-dir", folder, ROOT / part], check=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def files(folder: str, below: str = "") -> set[str]:
    paths = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(Path(below, path.relative_to(ROOT / folder))) for path in paths}


def test_the_wheel_of_the_engine_has_the_package_and_the_jobs_of_spark(tmp_path: Path) -> None:
    assert built(".", tmp_path) == files("include/unshard", "unshard") | files("spark_jobs", "unshard/spark_jobs")


def test_the_wheel_of_the_provider_has_the_plugin_and_the_dag_files(tmp_path: Path) -> None:
    own = files("plugins/unshard_airflow", "unshard_airflow") | files("plugins/airflow", "airflow")
    assert built("plugins", tmp_path) == own | files("dags", "unshard_airflow/dags")


@pytest.mark.test_all("asks PyPI for the tools that check wheels")
def test_make_dist_accepts_both_wheels() -> None:
    found = subprocess.run(["make", "dist"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.count("PASSED") == found.stdout.count(": OK") == 2
