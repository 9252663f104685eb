"""Heartbeats are the transport's: it watches for their absence, and tells the leader the edge."""

from __future__ import annotations

from evertrain.controlplane.shell.coordinator import Coordinator
from evertrain.controlplane.shell.sessions import HEARTBEAT_S, SILENT_AFTER_S, Silence

LOOK_EVERY_S = HEARTBEAT_S / 2


async def watch_silence(coordinator: Coordinator) -> None:
    """Hang up on sessions that went silent, whenever this process leads. Runs until cancelled."""
    silence = Silence(every_s=LOOK_EVERY_S, silent_after_s=SILENT_AFTER_S)
    while True:
        await coordinator.clock.sleep(LOOK_EVERY_S)
        leader = coordinator.leader
        sessions = () if leader is None else leader.sessions.values()
        for session in silence.look(coordinator.clock.monotonic(), sessions):
            assert leader is not None, "sessions are a leader's"
            await leader.hang_up(session, f"no report for {SILENT_AFTER_S:.0f} s")
