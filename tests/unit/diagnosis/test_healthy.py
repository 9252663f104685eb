"""Logs of jobs and nodes that are well give no finding that anybody would act on."""

from __future__ import annotations

import pytest

from evertrain.diagnosis.vocabulary import Group, NodeAction, Role
from support.evidence import classifier, parts

HEALTHY = {
    "training": """\
[2025-05-05 10:00:00,123] torch.distributed.run: [WARNING] Setting OMP_NUM_THREADS environment variable
node1:815:864 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.4<0>
node1:815:864 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so), using internal implementation
node1:815:864 [0] NCCL INFO Using network IB
/opt/lib/torch/functional.py:504: UserWarning: torch.meshgrid: in an upcoming release, it will be required
Downloading shards: 100%|##########| 2/2 [00:01<00:00,  1.91it/s]
Loading checkpoint shards: 100%|##########| 2/2 [00:05<00:00,  2.6s/it]
 iteration      100/    5000 | elapsed time per iteration (ms): 412.1 | lm loss: 3.1E+00 | number of nan iterations: 0
 iteration      200/    5000 | elapsed time per iteration (ms): 411.0 | lm loss: 2.9E+00 | loss scale: 1.0
{'loss': 1.2345, 'grad_norm': 0.41, 'learning_rate': 1e-05, 'epoch': 0.31}
Saving model checkpoint to /out/checkpoint-500
successfully saved checkpoint at iteration 500 to /out/ckpt
Running evaluation: 100%|##########| 30/30 [00:10<00:00]
wandb: Synced 5 W&B file(s), 0 media file(s), 0 artifact file(s) and 0 other file(s)
training complete""",
    "overflow": """\
[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768
step 5 loss 2.1
step 6 loss 2.0""",
    "kernel": """\
[    0.000000] Linux version 6.8.0 (build@host) #1 SMP PREEMPT_DYNAMIC
[   14.650646] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.71.05  Release Build
[   20.1] mlx5_core 0000:5e:00.0: firmware version: 28.39.1002
[   20.2] mlx5_core 0000:5e:00.0: Port module event: module 0, Cable plugged
[  100.1] pcieport 0000:00:03.0: AER: Corrected error received: 0000:00:03.0
[  100.2] pcieport 0000:00:03.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)
[  200.1] EDAC MC0: 1 CE memory read error on CPU_SrcID#0 (channel:1 slot:0 page:0x3 offset:0x0)
[  300.1] EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode. Quota mode: none.
[  400.1] nfs: server fs01 OK
[  500.1] NVRM: Xid (PCI:0000:4f:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: new row marked for remapping
[  600.1] systemd[1]: Started Daily apt upgrade and clean activities.
[  700.1] perf: interrupt took too long (2501 > 2500), lowering kernel.perf_event_max_sample_rate to 79750""",
    "agent": """\
10:00:00 heartbeat ok; 8/8 workers alive; gpu_util=98 power=flat
10:00:05 health: 8 GPUs, no Xid, ECC 0, links up
10:00:10 store: lease renewed""",
}


@pytest.mark.parametrize("name", sorted(HEALTHY))
def test_a_healthy_log_leads_to_no_blame_and_no_action(name: str) -> None:
    names = {"training": "r0", "overflow": "r1", "kernel": "dmesg__n1", "agent": "agent__n1"}
    found = classifier().verdict(parts(**{names[name]: HEALTHY[name]}))
    assert found.group in {Group.NONE, Group.UNKNOWN}, (found.cls, found.why)
    assert found.node_action is NodeAction.NONE


def test_all_healthy_logs_together_hold_no_cause() -> None:
    captures = parts(r0=HEALTHY["training"], dmesg__n1=HEALTHY["kernel"], agent__n1=HEALTHY["agent"])
    picture = classifier().picture(captures)
    assert [finding.signal.id for finding in picture.of(Role.ROOT, Role.EITHER)] == []
    assert classifier().verdict(captures).group is Group.NONE
