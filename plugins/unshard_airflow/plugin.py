"""The Airflow plugin: it adds the page to Airflow's navigation, and links to the operators."""

from typing import Any
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

from unshard_airflow.links import LockRunLink, TaskPageLink
from unshard_airflow.page.mount import Mounted, page

PREFIX = "/unshard"
# Airflow mounts the page below the path of its own address, but does not add that path to the iframe's.
BELOW = urlsplit(conf.get("api", "base_url", fallback="/")).path.rstrip("/")


class UnshardPlugin(AirflowPlugin):
    """Registers unshard with every component of Airflow."""

    name = "unshard"
    operator_extra_links: list[Any] = [LockRunLink(), TaskPageLink()]
    fastapi_apps: list[Any] = [{"app": Mounted(page), "url_prefix": PREFIX, "name": "unshard"}]
    external_views: list[Any] = [
        {
            "name": "unshard",
            "href": f"{BELOW}{PREFIX}/",
            "destination": "nav",
            "url_route": "unshard",
            "nav_top_level": True,
        }
    ]
