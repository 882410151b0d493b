"""`unshard plan`: what the task would do next and why, without doing it."""

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from unshard.cli.console import Answer, Console
from unshard.core.join.planning import JoinPlan
from unshard.core.join.states import State
from unshard.core.shown import as_document, one_line, shell
from unshard.core.stages import Detail, Stage
from unshard.core.window.windowstages import WindowStep
from unshard.operate.documents import (
    difference_document,
    error_document,
    lock_document,
    pause_document,
    suspended_document,
)
from unshard.units.ddl.coordinate import LockPlan
from unshard.units.ddl.differences import DifferenceView
from unshard.units.task.taskplan import PlannedStage, SourcePlan, TaskPlan, plan_task

ASKED = "effects of DDL were found on empty trial tables in the meta schema of the target; they are dropped again"
NOTHING = "no window to run: no stored binlog after the checkpoint, and no held rows to release (plan pulls no binlog)"


def plan_command(options: Namespace, console: Console) -> Answer:
    """Print the stages that come next."""
    task = console.load(options.task)
    found = plan_task(task)
    lines = [f"task {task.name} is {found.pause}; nothing begins before `unshard resume {shell(options.task)}`"]
    lines = lines if found.pause else []
    lines += [line for each in found.sources for line in source_lines(each)]
    lines += [f"all sources: {found.handover.kind}", f"  {found.handover.text}"] if found.handover else []
    lines += [line for each in found.locks for line in _lock_lines(each)]
    for target, each in found.joins.items():
        lines += _join_lines(str(target), each, [view for view in found.differences if view.target == target])
    lines += [ASKED] if found.asked_target else []
    return Answer(_document(task.name, [*task.warnings], found), lines, 1 if any(s.error for s in found.sources) else 0)


def source_lines(each: SourcePlan) -> list[str]:
    """Tell a person what comes next for a source."""
    lines = [f"source {each.source}: {_heading(each)}"]
    if each.rules is not None:
        lines.append("  rules           take the changed rules of the task file first, from the checkpoint on")
        lines += [f"    {change}" for change in each.rules]
    for planned in map(_worth_showing, each.stages):
        lines += [f"  {planned.stage.kind:<15} {planned.stage.text}"] if planned else []
        lines += [f"    {detail.text}" for detail in planned.details] if planned else []
    lines += [f"    {detail.text}" for detail in each.held]
    lines += [f"  suspended       {stop}" for stop in each.suspended]
    return lines


def _worth_showing(planned: PlannedStage) -> PlannedStage | None:
    is_idle = planned.stage.kind is WindowStep.CREATE_TARGETS and not planned.stage.values
    return None if is_idle else planned


def _heading(each: SourcePlan) -> str:
    if each.error is not None:
        return f"cannot be planned at {each.position}: {each.error}"
    if each.position is None:
        return f"full load, phase {each.phase}" if each.stages else f"phase {each.phase}, no stage of its own is left"
    if each.window is None:
        return NOTHING
    begun = " (begun and not committed; it runs again)" if each.window.is_begun else ""
    more = "; more binlog is stored for later windows" if each.window.has_more else ""
    return f"window {each.window.number} from {each.window.begins} to {each.window.ends}{begun}{more}"


def _lock_lines(each: LockPlan) -> list[str]:
    heading = (
        f"lock {each.lock.id} of {each.target}: {each.lock.state}" if each.lock else f"a new lock of {each.target}"
    )
    return [heading, *(f"  {stage.kind:<17} {stage.text}" for stage in each.stages)]


def _join_lines(target: str, each: JoinPlan, differences: Sequence[DifferenceView]) -> list[str]:
    """Tell what is due for a target that follows the join of its shards; nothing if it is settled."""
    lines = [f"  {stage.kind:<17} {stage.text}" for stage in each.stages]
    lines += [f"  waiting           {shard}: {decided}" for shard, decided in sorted(each.waiting.items())]
    for view in differences:
        have = f"{len(view.have)} of {view.shards} shards, " if view.state is State.OPEN else ""
        lines += [] if view.ddl else [f"  {view.state:<17} {view.subject}: {have}{view.when}"]
        lines += [f"    {one_line(text)}" for text in view.statements]
    return [f"differences of {target}", *lines] if lines else []


def _document(task: str, warnings: list[str], found: TaskPlan) -> dict[str, Any]:
    return {
        "task": task,
        "warnings": warnings,
        "pause": pause_document(found.pause),
        "sources": [_source_document(each) for each in found.sources],
        "handover": _stage_document(found.handover) if found.handover else None,
        "locks": [
            {
                "target": str(each.target),
                "lock": lock_document(each.lock) if each.lock else None,
                "stages": [_stage_document(stage) for stage in each.stages],
            }
            for each in found.locks
        ],
        "differences": [
            {
                "target": str(target),
                "stages": [_stage_document(stage) for stage in each.stages],
                "waiting": {str(shard): str(decided) for shard, decided in sorted(each.waiting.items())},
                "open": [difference_document(view) for view in found.differences if view.target == target],
            }
            for target, each in found.joins.items()
        ],
        "used_trial_tables": found.asked_target,
    }


def _source_document(each: SourcePlan) -> dict[str, Any]:
    window = each.window
    return {
        "source": each.source,
        "phase": each.phase,
        "position": str(each.position) if each.position else None,
        "window": as_document(window, "number begins ends is_begun safe has_more", safe="is_safe") if window else None,
        "rules": None if each.rules is None else [*each.rules],
        "stages": [
            {**_stage_document(planned.stage), "details": [_detail_document(detail) for detail in planned.details]}
            for planned in each.stages
        ],
        "held": [_detail_document(detail) for detail in each.held],
        "suspended_targets": [suspended_document(stop) for stop in each.suspended],
        "error": error_document(each.error) if each.error else None,
    }


def _stage_document(stage: Stage[Any, Any]) -> dict[str, str]:
    return {"stage": stage.kind, "text": stage.text}


def _detail_document(detail: Detail) -> dict[str, Any]:
    found = as_document(detail, "action text shard target lock ddl rows")
    return found | {key: found[key] or None for key in ("lock", "ddl")}
