"""Start a launcher: a process that outlives its agent, in the job's own Python, with little of our environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evertrain.agent import folders
from evertrain.contract import environ
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import LaunchFile

INHERITED: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "XDG_RUNTIME_DIR"),
    *("XDG_CACHE_HOME", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""What a launcher gets of the agent's environment. An allowed list, because credentials have names nobody can list."""
INHERITED_PREFIXES: Final = ("LC_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "TORCH_", "UCX_", "FI_")


class StartFailed(Exception):
    """A launcher could not be started; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """How launchers are started on this node."""

    node: str
    address: str
    pylib: Path
    """Folder that holds ``evertrain``'s packages for launchers."""
    environment: Mapping[str, str]
    """The agent's own."""

    def start(
        self, folder: Path, *, job: str, owner: str, spec: JobSpec, devices: tuple[tuple[str, ...], ...]
    ) -> subprocess.Popen[bytes]:
        """Prepare ``folder`` and start a launcher in it. Raises :class:`StartFailed`."""
        env = self._environment(spec, owner)
        launch = LaunchFile(job_id=job, spec=spec, node=self.node, address=self.address, devices=devices, owner=owner)
        python = spec.python or sys.executable
        try:
            folders.prepare(folder, launch)
            with (folder / "launcher.log").open("ab") as log:
                # A session of its own: the agent's terminal and its signals don't reach the launcher. The
                # file descriptors of the agent, its lock among them, are closed by Popen.
                return subprocess.Popen(
                    [python, "-m", "evertrain.launcher", "--dir", str(folder)],
                    cwd=folder,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except folders.FolderError as err:
            raise StartFailed(str(err)) from err
        except OSError as err:
            raise StartFailed(f"cannot start {python} in {folder}: {err.strerror}; see python: of the job") from err

    def _environment(self, spec: JobSpec, owner: str) -> dict[str, str]:
        kept = {
            name: value
            for name, value in self.environment.items()
            if name in INHERITED or name.startswith(INHERITED_PREFIXES)
        }
        path = os.pathsep.join(filter(None, (str(self.pylib), spec.env.get("PYTHONPATH", ""))))
        return {**kept, **spec.env, "PYTHONPATH": path, environ.OWNER: owner, environ.NODE: self.node}
