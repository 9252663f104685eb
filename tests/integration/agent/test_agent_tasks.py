"""A real agent does tasks with real checkpoints, and says what came of them for as long as they are wanted."""

from __future__ import annotations

import signal
from pathlib import Path

from evertrain.api.mirror import from_message
from evertrain.api.v1 import agent_pb2
from evertrain.checkpoint.storage import open_storage
from evertrain.contract.task import TaskOutcome, TaskResult
from support.agent_process import Node
from support.checkpoints import Checkpoint, write_checkpoint
from support.coordinator import ScriptedCoordinator, ScriptedSession

VERIFY, REMOVE, EXPORT = agent_pb2.TASK_KIND_VERIFY, agent_pb2.TASK_KIND_REMOVE, agent_pb2.TASK_KIND_EXPORT


def a_task(name: str, kind: agent_pb2.TaskKind, path: Path, *, digest: str = "", to: str = "") -> agent_pb2.TaskOrder:
    return agent_pb2.TaskOrder(
        id=name, kind=kind, job="j.1", path=str(path), digest=digest, destination=to, deadline_s=60.0
    )


async def results(session: ScriptedSession, *names: str) -> dict[str, TaskResult]:
    """Wait until exactly these have ended."""
    wanted = set(names)
    await session.until(lambda it: it.reports and {each.id for each in it.reports[-1].tasks} == wanted)
    return {each.id: from_message(TaskResult, each) for each in session.reports[-1].tasks}


def written(root: Path) -> tuple[Checkpoint, Path]:
    checkpoint = write_checkpoint(open_storage(str(root)), job="j.1")
    return checkpoint, root / checkpoint.folder


async def test_a_checkpoint_is_verified_copied_and_removed(
    node: Node, coordinator: ScriptedCoordinator, tmp_path: Path
) -> None:
    checkpoint, folder = written(tmp_path / "c")
    await node.start(coordinator.address)
    session = await coordinator.session()
    verify = a_task("t1", VERIFY, folder, digest=checkpoint.digest)
    session.order(tasks=[verify])
    found = (await results(session, "t1"))["t1"]
    assert found.outcome is TaskOutcome.DONE
    assert found.bytes_total > 0
    session.order(tasks=[verify, a_task("t2", EXPORT, folder, to=str(tmp_path / "out"))])
    assert (await results(session, "t1", "t2"))["t2"].outcome is TaskOutcome.DONE
    session.order(tasks=[a_task("t3", REMOVE, folder)])
    assert (await results(session, "t3"))["t3"].outcome is TaskOutcome.DONE
    assert not folder.exists()
    assert [path.name for path in (tmp_path / "out").rglob("manifest.json")] == ["manifest.json"]


async def test_damage_is_named_and_a_mount_that_is_missing_is_no_damage(
    node: Node, coordinator: ScriptedCoordinator, tmp_path: Path
) -> None:
    checkpoint, folder = written(tmp_path / "c")
    part = next(folder.glob("rank-*1.bin"))
    data = bytearray(part.read_bytes())
    data[100] ^= 1
    part.write_bytes(data)
    await node.start(coordinator.address)
    session = await coordinator.session()
    session.order(tasks=[a_task("t1", VERIFY, folder, digest=checkpoint.digest)])
    damaged = (await results(session, "t1"))["t1"]
    assert (damaged.outcome, damaged.part) == (TaskOutcome.CORRUPT, part.name)
    session.order(tasks=[a_task("t2", VERIFY, tmp_path / "nowhere" / folder.name)])
    unread = (await results(session, "t2"))["t2"]
    assert unread.outcome is TaskOutcome.UNREADABLE
    assert "mounted?" in unread.reason


async def test_an_agent_that_was_killed_does_its_tasks_again_when_they_are_still_wanted(
    node: Node, coordinator: ScriptedCoordinator, tmp_path: Path
) -> None:
    checkpoint, folder = written(tmp_path / "c")
    first = await node.start(coordinator.address)
    session = await coordinator.session()
    verify = a_task("t1", VERIFY, folder, digest=checkpoint.digest)
    session.order(tasks=[verify])
    await results(session, "t1")
    await first.end(signal.SIGKILL)
    await node.start(coordinator.address)
    session = await coordinator.session()
    await session.until(lambda it: it.reports)
    assert not session.reports[-1].tasks, "it remembers none"
    session.order(tasks=[verify])
    assert (await results(session, "t1"))["t1"].outcome is TaskOutcome.DONE
