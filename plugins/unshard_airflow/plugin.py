"""The Airflow plugin: it adds the page to Airflow's navigation, and links to the operators."""

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from unshard_airflow.links import LockRunLink, TaskPageLink, at
from unshard_airflow.page.mount import Mounted, page


class UnshardPlugin(AirflowPlugin):
    """Registers unshard with every component of Airflow."""

    name = "unshard"
    operator_extra_links: list[Any] = [LockRunLink(), TaskPageLink()]
    fastapi_apps: list[Any] = [{"app": Mounted(page), "url_prefix": "/unshard", "name": "unshard"}]
    external_views: list[Any] = [
        {
            "name": "unshard",
            "href": at("unshard", ""),
            "destination": "nav",
            "url_route": "unshard",
            "nav_top_level": True,
        }
    ]
