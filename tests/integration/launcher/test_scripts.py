"""A script in a forked worker behaves as ``python script.py`` and as under torchrun. Two warm launchers serve all."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evertrain.contract.launch import GroupState, LauncherStatus
from support.launcher import SOON_S, WARM_S, Stage, kill, run_order

pytestmark = pytest.mark.torch


async def played(stage: Stage, text: str, state: GroupState = GroupState.SUCCEEDED) -> tuple[LauncherStatus, list[str]]:
    """Run a script as both workers of one node; the last status and what each rank wrote."""
    generation = stage.play(text)
    async with stage.driver() as driver:
        await driver.order(run_order(generation, port=await driver.port(), nproc=2))
        await driver.group(state, generation=generation, within_s=WARM_S)
        status = await driver.until(lambda status: len(status.exits) == 2)
    return status, [stage.output(rank, generation) for rank in (0, 1)]


def plain(stage: Stage, text: str) -> subprocess.CompletedProcess[str]:
    """The same script under a fresh interpreter."""
    stage.script.write_text(text)
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    return subprocess.run(
        [sys.executable, str(stage.script), "--lr", "0.1"],
        cwd=stage.script.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WARM_S,
        check=False,
    )


WHAT_A_SCRIPT_SEES = """
import __main__, gc, json, os, signal, sys, threading
def handler(number): return str(signal.getsignal(number)).replace("Handlers.", "")
print(json.dumps({
    "name": __name__, "file": __file__, "main": __main__.__file__, "spec": __spec__, "package": __package__,
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path0": sys.path[0], "cwd": os.getcwd(),
    "keys": sorted(globals())[:9],
    "threads": threading.active_count(), "main_thread": threading.current_thread() is threading.main_thread(),
    "frames": sys._getframe().f_code.co_name, "stdin": sys.stdin.read(), "flags": str(sys.flags),
    "loader": type(__loader__).__name__, "annotations": __annotations__, "builtins": str(__builtins__)[:25],
    "signals": [handler(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP, signal.SIGCHLD)],
    "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "umask": os.umask(0o22), "gc": gc.isenabled(),
    "fds": sorted(map(int, os.listdir("/proc/self/fd")))[:3], "encoding": [sys.stdout.encoding, sys.stderr.errors],
}))
"""


async def test_a_script_sees_what_a_fresh_interpreter_would_show_it(stage: Stage) -> None:
    _, outputs = await played(stage, WHAT_A_SCRIPT_SEES)
    process = subprocess.run(
        [sys.executable, str(stage.script), "--lr", "0.1"],
        cwd=stage.script.parent,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WARM_S,
        check=True,
    )
    for output in outputs:
        assert json.loads(output) == json.loads(process.stdout)


async def test_a_worker_has_no_descriptor_that_is_not_its_own(stage: Stage) -> None:
    text = """if True:
        import os
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and os.path.lexists(f"/proc/self/fd/{name}"):
                print(os.readlink(f"/proc/self/fd/{name}"))
    """
    _, outputs = await played(stage, text)
    for output in outputs:
        assert "socket" not in output
        assert "pipe" not in output
        assert "anon_inode" not in output


RAISES = """
import sys
def inner():
    raise ValueError("the learning rate\\nis wrong")
print("before", file=sys.stderr)
inner()
"""


async def test_an_uncaught_exception_reads_as_from_a_fresh_interpreter_and_fills_the_error_file(stage: Stage) -> None:
    status, outputs = await played(stage, RAISES, GroupState.FAILED)
    assert [gone.code for gone in status.exits if not gone.stopped_by_us] == [1] * len(
        [gone for gone in status.exits if not gone.stopped_by_us]
    )
    first = status.exits[0]
    assert first.message == "ValueError: the learning rate"
    assert outputs[first.rank] == plain(stage, RAISES).stderr
    error = json.loads((stage.folder / "errors" / f"generation{status.generation}-rank{first.rank}.json").read_text())
    assert error["message"]["message"] == "ValueError: the learning rate\nis wrong"
    assert "in inner" in error["message"]["extraInfo"]["py_callstack"]


RECORDED = """
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    raise RuntimeError("out of luck")
main()
"""


async def test_torchs_own_record_keeps_its_error_file(stage: Stage) -> None:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

    status, _ = await played(stage, RECORDED, GroupState.FAILED)
    first = status.exits[0]
    assert first.message == "RuntimeError: out of luck"
    file = stage.folder / "errors" / f"generation{status.generation}-rank{first.rank}.json"
    torchs = ProcessFailure(first.local_rank, first.pid, first.code, str(file))
    assert torchs.message["message"] == first.message  # type: ignore[index] # torch says str and means a dict


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("import sys; sys.exit(7)", 7, "exit code 7 without a word"),
        ("import sys; sys.exit('give up')", 1, "give up"),
        ("import os; print('gone', flush=True); os._exit(9)", 9, "gone"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)\nimport time; time.sleep(60)", -2, "killed by SIGINT"),
        ("import os; os.abort()", -6, "killed by SIGABRT"),
        ("x = = 1", 1, "SyntaxError: invalid syntax (script.py, line 1)"),
    ],
)
async def test_exit_codes_are_those_of_a_fresh_interpreter(stage: Stage, text: str, code: int, message: str) -> None:
    status, _ = await played(stage, text, GroupState.FAILED)
    assert plain(stage, text).returncode == code
    assert status.exits[0].code == code
    assert status.exits[0].message.startswith(message)


async def test_exit_handlers_threads_and_buffers_end_as_usual(stage: Stage) -> None:
    text = (
        "import atexit, sys, threading, time\n"
        "atexit.register(print, 'handler')\n"
        "done = threading.Event()\n"
        "threading.Thread(target=lambda: (done.wait(), print('thread'))).start()\n"
        "print('main', end=' ')\n"
        "done.set()\n"
    )
    _, outputs = await played(stage, text)
    assert outputs == ["main thread\nhandler\n"] * 2


RANDOM = """
import random, json, numpy, torch, uuid
drawn = [random.random(), numpy.random.rand(), torch.rand(1).item(), torch.initial_seed(), str(uuid.uuid4())]
print(json.dumps(drawn))
"""


async def test_workers_share_no_random_state_with_each_other_or_with_the_next_generation(stage: Stage) -> None:
    _, first = await played(stage, RANDOM)
    _, second = await played(stage, RANDOM)
    drawn = [json.loads(output) for output in (*first, *second)]
    for of_one_kind in zip(*drawn, strict=True):
        assert len(set(of_one_kind)) == 4, of_one_kind


CHILDREN = """
import multiprocessing, os, pickle, torch
from concurrent.futures import ProcessPoolExecutor
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return torch.tensor(i)

def double(x): return 2 * x

if __name__ == "__main__":
    assert pickle.loads(pickle.dumps(Numbers())).__class__ is Numbers
    for method in ("spawn", "fork"):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
            assert pool.submit(double, 21).result() == 42
        loader = DataLoader(Numbers(), batch_size=4, num_workers=1, multiprocessing_context=method)
        assert [batch.sum().item() for batch in loader] == [6, 22]
    print("all well")
"""


async def test_pickling_child_processes_and_data_loaders_find_the_script(stage: Stage) -> None:
    _, outputs = await played(stage, CHILDREN)
    assert outputs == ["all well\n"] * 2


async def test_asyncio_and_the_trainer_library_work_in_a_worker(stage: Stage) -> None:
    text = "import asyncio, evertrain.trainer\nasync def main(): return 'done'\nprint(asyncio.run(main()))"
    _, outputs = await played(stage, text)
    assert outputs == ["done\n"] * 2


async def test_a_script_that_is_not_there_fails_as_with_a_fresh_interpreter(stage: Stage) -> None:
    generation = stage.play("")
    stage.script.unlink()
    async with stage.driver() as driver:
        await driver.order(run_order(generation, port=await driver.port(), nproc=2))
        status = await driver.group(GroupState.FAILED, generation=generation)
    assert status.exits[0].code == 2
    assert "can't open file" in status.exits[0].message


async def test_threads_of_torch_follow_the_job_and_not_the_machine(stage: Stage) -> None:
    _, outputs = await played(stage, "import os, torch; print(os.environ['OMP_NUM_THREADS'], torch.get_num_threads())")
    assert outputs == ["1 1\n"] * 2


ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"
NOT_COMPARED = {
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_MAX_RESTARTS"),
    "TORCHELASTIC_RESTART_COUNT",
}
OF_THE_STARTER = {"COLUMNS", "LINES", "TORCHELASTIC_SIGNALS_TO_HANDLE"}
"""Set by pytest, and by torchrun for its own process; workers only inherit them."""


async def test_the_environment_is_that_of_torchrun(stage: Stage) -> None:
    """Compared with a real torchrun of the same shape: each name it sets is set, to the same value where it can be."""
    status, outputs = await played(stage, ENVIRONMENT)
    # A file for each rank: on one pipe an unbuffered interpreter may write between the other's line and its end.
    logs = stage.folder / "torchrun"
    shape = ("--standalone", "--nproc-per-node=2", "--redirects=3", f"--log-dir={logs}")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "torch.distributed.run", *shape, str(stage.script)), stderr=asyncio.subprocess.PIPE
    )
    _, complaints = await asyncio.wait_for(process.communicate(), WARM_S)
    assert process.returncode == 0, complaints.decode()
    theirs = [json.loads(next(logs.rglob(f"attempt_0/{rank}/stdout.log")).read_text()) for rank in (0, 1)]
    for rank, output in enumerate(outputs):
        ours = json.loads(output)
        names = {name for name in theirs[rank] if name not in os.environ} - OF_THE_STARTER
        assert names <= set(ours)
        different = {name for name in names if ours[name] != theirs[rank][name]} - NOT_COMPARED
        assert different == set()
        assert ours["TORCHELASTIC_RESTART_COUNT"] == str(status.generation - 1)
        assert Path(ours["TORCHELASTIC_ERROR_FILE"]).parent == stage.folder / "errors"


GANG = """
import os, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10**6):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    if step == 0:
        weights = model.module.weight.detach().clone()
        dist.all_reduce(weights)
        assert torch.allclose(weights / dist.get_world_size(), model.module.weight)
        print("stepped", dist.get_rank(), dist.get_world_size(), int(os.environ["GROUP_RANK"]), os.getpid(), flush=True)
"""


async def both(stages: tuple[Stage, Stage], generation: int, first: int = 0) -> None:
    """Order one generation on two nodes, the store on node ``first``, and wait until all four ranks have stepped."""
    async with stages[0].driver() as a, stages[1].driver() as b:
        port = await (a, b)[first].port()
        await (b, a)[first].port()
        for node, driver in enumerate((a, b) if first == 0 else (b, a)):
            await driver.order(run_order(generation, port=port, nproc=2, nodes=2, node=node))
        for driver in (a, b):
            await driver.group(GroupState.RUNNING, generation=generation)
    for node, stage in enumerate(stages if first == 0 else stages[::-1]):
        for rank in (2 * node, 2 * node + 1):
            assert f"stepped {rank} 4 {node}" in await stage.wrote(rank, generation, "stepped", within_s=SOON_S)


async def test_a_torchrun_script_trains_over_two_nodes_and_again_after_a_worker_was_killed(
    stages: tuple[Stage, Stage],
) -> None:
    await both(stages, stages[0].play(GANG))
    async with stages[1].driver() as driver:
        generation = driver.status.generation
        victim = int(stages[1].output(3, generation).split()[-1])
        kill(victim)
        status = await driver.group(GroupState.FAILED, generation=generation)
        assert [(gone.pid, gone.rank, gone.code) for gone in status.exits[:1]] == [(victim, 3, -9)]
    await both(stages, stages[0].play(GANG))
    await both(stages, stages[0].play(GANG), first=1)  # the store may be on the other node the next time
