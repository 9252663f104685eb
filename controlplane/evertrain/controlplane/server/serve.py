"""Put the services on a gRPC server: agents, operators, health, reflection."""

from __future__ import annotations

import asyncio

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer  # the module behind the documented grpc_health.v1.health.aio
from grpc_reflection.v1alpha import reflection

from evertrain.api.v1 import agent_pb2, agent_pb2_grpc, operator_pb2, operator_pb2_grpc
from evertrain.controlplane.server.agent_service import AgentService
from evertrain.controlplane.server.logs import LogStreams
from evertrain.controlplane.server.operator_service import OperatorService
from evertrain.controlplane.server.silence import watch_silence
from evertrain.controlplane.shell.coordinator import Coordinator

AGENT = agent_pb2.DESCRIPTOR.services_by_name["AgentService"].full_name
OPERATOR = operator_pb2.DESCRIPTOR.services_by_name["OperatorService"].full_name
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
HEALTH_EVERY_S = 0.5


class Doors:
    """What the services need to be kept: their health for load balancers and probes, the watch for silent nodes."""

    def __init__(self, health: HealthServicer) -> None:
        self._health = health

    async def keep(self, coordinator: Coordinator) -> None:
        """Run beside the coordinator until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watch_silence(coordinator))
            tasks.create_task(self._tell_health(coordinator))

    async def _tell_health(self, coordinator: Coordinator) -> None:
        """Keep the standard health service true: a standby serves reads, only the leader serves agents."""
        serving = health_pb2.HealthCheckResponse.SERVING
        standing_by = health_pb2.HealthCheckResponse.NOT_SERVING
        await self._health.set("", serving)
        await self._health.set(OPERATOR, serving)
        while True:
            leads = coordinator.leader is not None
            await self._health.set(AGENT, serving if leads else standing_by)
            await coordinator.clock.sleep(HEALTH_EVERY_S)


def add_services(server: grpc.aio.Server, coordinator: Coordinator) -> Doors:
    """Add everything this coordinator serves."""
    logs = LogStreams()
    agent_pb2_grpc.add_AgentServiceServicer_to_server(AgentService(coordinator, logs), server)
    operator_pb2_grpc.add_OperatorServiceServicer_to_server(OperatorService(coordinator, logs), server)
    health = HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    reflection.enable_server_reflection((AGENT, OPERATOR, HEALTH, reflection.SERVICE_NAME), server)
    return Doors(health)
