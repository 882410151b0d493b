"""The metrics: their list, their values, and the page, dashboard, mapping and alerts that name them."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml

from tests.unit.test_docs import anchors_of
from unshard.cli.prometheus import BUCKETS
from unshard.core.task.state import Phase
from unshard.units.task.metrics import METRICS, MetricKind, of_task
from unshard.units.task.status import SourceStatus, TaskFigures

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/metrics.md"
OBSERVABILITY = ROOT / "include/observability"
NAMED = re.compile(r"\bunshard_\w+")
IN_PROMETHEUS = {metric.in_prometheus: metric for metric in METRICS.values()}


def named(expression: str) -> set[str]:
    """Return the metrics that a query names; `unshard_…_bucket` is a part of a timer."""
    names = set(NAMED.findall(expression))
    timers = {f"{name}_bucket": name for name, each in IN_PROMETHEUS.items() if each.kind is MetricKind.TIMER}
    return {timers.get(name, name) for name in names}


def test_the_page_lists_all_metrics() -> None:
    rows = re.findall(r"^\| `unshard_.*", PAGE.read_text(), re.MULTILINE)
    assert rows == [
        f"| `{each.in_prometheus}` | `{each.in_airflow}` | {each.kind} | {', '.join(each.tags)} | {each.about} |"
        for each in METRICS.values()
    ]


def test_the_dashboard_shows_all_metrics_and_no_others() -> None:
    panels = json.loads((OBSERVABILITY / "dashboard.json").read_text())["panels"]
    shown = {name for panel in panels for target in panel["targets"] for name in named(target["expr"])}
    assert shown == set(IN_PROMETHEUS)
    for panel in panels:
        for target in panel["targets"]:
            tags = {tag for name in named(target["expr"]) for tag in IN_PROMETHEUS[name].tags}
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= tags, panel["title"]


def test_the_mapping_gives_each_metric_of_statsd_its_name() -> None:
    mapping = yaml.safe_load((OBSERVABILITY / "statsd-mapping.yaml").read_text())
    for metric in METRICS.values():
        rules = ((rule, re.fullmatch(rule["match"], f"airflow.{metric.in_airflow}")) for rule in mapping["mappings"])
        rule, found = next((rule, found) for rule, found in rules if found)
        assert re.sub(r"\$\{?1\}?", found[1], rule["name"]) == metric.in_prometheus
        assert ("ttl" in rule) == (metric.kind is MetricKind.GAUGE)
    assert tuple(mapping["defaults"]["histogram_options"]["buckets"]) == BUCKETS


def test_each_alert_is_about_metrics_and_has_a_runbook() -> None:
    (group,) = yaml.safe_load((OBSERVABILITY / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]:
        names = named(rule["expr"])
        assert names and names <= set(IN_PROMETHEUS), rule["alert"]
        tags = {tag for name in names for tag in IN_PROMETHEUS[name].tags}
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= tags
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert anchor == rule["alert"].lower() and anchor in anchors_of(ROOT / page)


def values(*sources: SourceStatus, figures: TaskFigures | None = None) -> dict[str, float]:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return {
        " ".join((each.metric.name, *(value for tag, value in each.tags.items() if tag != "task"))): each.value
        for each in of_task("shop", sources, figures, now)
    }


def test_unknown_values_are_not_sent() -> None:
    found = values(SourceStatus("s1"), SourceStatus("s2", Phase.SYNC, lag_seconds=7, lag_bytes=0))
    assert found["target_reachable"] == 1
    assert "lag_seconds s1" not in found and "dump_percent s2" not in found and "paused" not in found
    assert (found["lag_seconds s2"], found["binlog_bytes_behind s2"], found["source_reachable s1"]) == (7, 0, 1)


def test_each_target_has_the_age_of_its_lock() -> None:
    from types import SimpleNamespace

    from unshard.core.model import TableId

    one, other = TableId("shop", "a"), TableId("shop", "b")
    opened = datetime(2026, 1, 1, tzinfo=UTC) - timedelta(minutes=2)
    locks = (SimpleNamespace(target=one, opened_at=opened),)
    figures = TaskFigures(None, frozenset({one, other}), locks, (), {"shop.b": 3}, ())  # type: ignore[arg-type]
    found = values(figures=figures)
    assert (found["open_locks shop.a"], found["oldest_lock_seconds shop.a"], found["missing_rows shop.a"]) == (
        1,
        120,
        0,
    )
    assert (found["open_locks shop.b"], found["oldest_lock_seconds shop.b"], found["missing_rows shop.b"]) == (0, 0, 3)
    assert found["paused"] == 0
