"""What each rule decides, in small: one situation each, and the answer that a colleague would give."""

from __future__ import annotations

import pytest

from evertrain.diagnosis.evidence import Clock, Moment, Observation, Origin, SourceKind
from evertrain.diagnosis.vocabulary import (
    TREATMENT,
    Confidence,
    CulpritKind,
    FailureClass,
    Group,
    JobAction,
    NodeAction,
)
from evertrain.diagnosis.wording import do_next, headline
from support.evidence import classifier, merged, timed_out, verdict

XID_79 = "NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus."
OUT_OF_DATA = "epoch 0 finished, 1180 batches"


def xid_13(pid: int, at: str = "") -> str:
    what = "Graphics SM Warp Exception on (GPC 2, TPC 1, SM 0)"
    return f"{at}NVRM: Xid (PCI:0000:3b:00): 13, pid={pid}, name=python, {what}"


def test_a_node_with_a_dead_gpu_is_drained_and_the_ranks_that_waited_are_not_blamed() -> None:
    found = verdict(dmesg__a03=XID_79, r6="RuntimeError: CUDA error: unknown error", r0=timed_out(0, 991))
    assert (found.cls, found.group, found.confidence) == (FailureClass.HARDWARE_GPU, Group.NODE, Confidence.HIGH)
    assert found.culprit.names == ("a03/0000:06:00",)
    assert (found.job_action, found.node_action) == (JobAction.RETRY_EXCLUDE, NodeAction.DRAIN)
    assert found.evidence[0].signal == "xid-79"
    assert headline(found).startswith("a03/0000:06:00: Xid 79")
    assert any(step.startswith("Drain a03: reboot") for step in do_next(found))


def test_the_same_hardware_signal_on_many_nodes_drains_none_of_them() -> None:
    found = verdict(**{f"dmesg__n{number}": XID_79 for number in range(6)})
    assert (found.culprit.kind, found.node_action) == (CulpritKind.INFRASTRUCTURE, NodeAction.WATCH)
    assert found.confidence is Confidence.LOW


@pytest.mark.parametrize(
    ("target", "node_action"), [("0x1 (GPU Reset Required)", NodeAction.DRAIN), ("0x0 (None)", NodeAction.NONE)]
)
def test_the_drivers_own_word_decides_by_its_target(target: str, node_action: NodeAction) -> None:
    text = f"NVRM: Xid (PCI:0018:01:00): 154, GPU recovery action changed from 0x4 (Drain and Reset) to {target}"
    found = verdict(dmesg__n1=text, r0="KeyError: 'x'")
    assert found.node_action is node_action


def test_one_xid_13_is_the_programs_and_a_burst_of_one_process_too_but_not_those_of_three_jobs() -> None:
    fault = "RuntimeError: CUDA error: an illegal memory access was encountered"
    once = verdict(dmesg__a01="\n".join([xid_13(4410)] * 3), r2=fault)
    assert (once.cls, once.node_action) == (FailureClass.USER_CODE, NodeAction.NONE)
    thrice = verdict(dmesg__a01="\n".join(xid_13(pid, f"day{day} ") for day, pid in ((1, 4410), (2, 9021), (3, 1177))))
    assert (thrice.cls, thrice.node_action) == (FailureClass.HARDWARE_GPU_SUSPECT, NodeAction.DIAGNOSE)


def test_one_process_that_faults_for_days_is_one_process() -> None:
    found = verdict(dmesg__a01="\n".join(xid_13(4410, f"day{day} ") for day in (1, 2, 3)))
    assert found.node_action in {NodeAction.NONE, NodeAction.WATCH}


def test_any_number_of_xid_45_never_outranks_the_programs_exception() -> None:
    channels = "\n".join(
        f"NVRM: Xid (PCI:0000:61:00): 45, pid=149, name=python, Ch {number:08x}" for number in range(300)
    )
    found = verdict(dmesg__n01=channels, r12="KeyError: 'labels'", r0="closing signal SIGTERM")
    assert (found.cls, found.culprit.names, found.node_action) == (
        FailureClass.USER_CODE,
        ("rank 12",),
        NodeAction.NONE,
    )


def test_an_xid_45_that_names_the_one_before_it_is_taken_for_that_one() -> None:
    found = verdict(
        dmesg__n1="NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=python3, Ch 00000001 caused by previous Xid 79",
        r5="RuntimeError: CUDA error: unspecified launch failure",
    )
    assert (found.cls, found.culprit.names) == (FailureClass.HARDWARE_GPU, ("n1/0000:dc:00",))


def test_a_switch_error_after_the_own_sigterm_of_a_preemption_asks_for_no_ticket() -> None:
    found = verdict(
        scheduler="10:15:00 preempting job ace (higher priority job)",
        r0="10:15:01 received SIGTERM; aborting communicators",
        dmesg__d01="10:15:02 nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 12028, Non-fatal, Link 38",
    )
    assert (found.cls, found.job_action) == (FailureClass.PREEMPTION, JobAction.REQUEUE)
    assert (found.node_action, found.culprit.names, found.charged) == (NodeAction.RESTART, ("d01",), False)


def test_an_exception_before_the_cancellation_is_the_cause_and_one_after_it_is_not() -> None:
    cancelled = "{} slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2025-01-10T15:27:25 DUE TO TIME LIMIT ***"
    before = verdict(scheduler=cancelled.format("12:00:00"), r1="11:00:00 KeyError: 'x'")
    assert before.cls is FailureClass.USER_CODE
    after = verdict(scheduler=cancelled.format("12:00:00"), r1="12:00:03 KeyError: 'x'")
    assert after.cls is FailureClass.WALLTIME


def test_a_hang_that_ran_into_the_time_limit_is_a_hang() -> None:
    limit = "12:00:00 slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT x DUE TO TIME LIMIT ***"
    found = verdict(scheduler=limit, r1="11:00:00 " + timed_out(1, 900), r2="11:00:01 " + timed_out(2, 900))
    assert found.cls is FailureClass.HANG_DESYNC


def test_an_impossible_out_of_memory_after_a_timeout_is_no_out_of_memory() -> None:
    found = verdict(
        r3=timed_out(3, 8812, op="BROADCAST") + "\ntorch.OutOfMemoryError: Tried to allocate more than 1EB memory.",
        r0="10:00:01 step 8811 done; starting optimizer state gather",
    )
    assert (found.cls, found.culprit.names) == (FailureClass.HANG_DESYNC, ("rank 0",))


def test_memory_that_a_stranger_holds_is_the_nodes() -> None:
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of "
        "79.14 GiB of which 0.60 GiB is free. Including non-PyTorch memory, this process has {} GiB memory in use."
    )
    assert verdict(r2=text.format("12.0")).cls is FailureClass.NODE_SOFTWARE
    assert verdict(r2=text.format("78.0")).cls is FailureClass.GPU_OOM
    of_old = (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 3; "
        "79.15 GiB total capacity; 5.10 GiB already allocated; 12.00 MiB free; {} GiB reserved in total by PyTorch)"
    )
    assert verdict(r2=of_old.format("6.00")).cls is FailureClass.NODE_SOFTWARE
    assert verdict(r2=of_old.format("78.00")).cls is FailureClass.GPU_OOM


def test_ranks_that_called_different_things_show_the_one_that_is_different() -> None:
    sizes = {"r0": 2048, "r1": 1024, "r2": 1024}
    found = verdict(**{name: timed_out(int(name[1:]), 7, numel=size) for name, size in sizes.items()})
    assert (found.cls, found.culprit.names, found.confidence) == (
        FailureClass.USER_CODE,
        ("rank 0",),
        Confidence.HIGH,
    )
    assert found.attempts_max == 0


def test_equal_numbers_of_different_process_groups_are_not_compared() -> None:
    text = "{}\n[PG ID {} PG GUID {} Rank {}] Exception detected by watchdog at work: 7"
    found = merged(
        "\n".join(
            [
                text.format(timed_out(0, 7), 1, 1, 0),
                text.format(timed_out(1, 7), 1, 1, 1),
                text.format(timed_out(2, 7, op="_REDUCE_SCATTER_BASE"), 2, 9, 2),
            ]
        )
    )
    assert found.cls is not FailureClass.USER_CODE


def test_who_ran_out_of_data_or_still_prepares_is_named_and_the_job_stopped() -> None:
    uneven = verdict(r3=OUT_OF_DATA, r0="epoch 0 batch 1181\n" + timed_out(0, 4726))
    assert (uneven.cls, uneven.culprit.names) == (FailureClass.USER_CODE, ("rank 3",))
    busy = "Running tokenizer on dataset:   9%| 280000/2969526 [29:55<4:48:08]"
    preparing = verdict(r0=busy, r1=timed_out(1, 2, numel=1), r2=timed_out(2, 2, numel=1))
    assert (preparing.cls, preparing.job_action) == (FailureClass.USER_CONFIG, JobAction.STOP)
    alone = verdict(r1=timed_out(1, 2, numel=1))
    assert (alone.group, alone.job_action) == (Group.UNKNOWN, JobAction.COLLECT)


def test_all_missing_ranks_on_one_node_point_at_it_but_do_not_drain_it() -> None:
    text = "[rank0]: Not all ranks joining collective 12, missing ranks: {8, 9}\n[n7:8] step 4\n[n7:9] step 4\n"
    found = merged(text + timed_out(0, 12))
    assert (found.culprit.kind, found.culprit.names, found.node_action) == (CulpritKind.NODE, ("n7",), NodeAction.WATCH)


def test_a_silent_stall_is_told_by_progress_and_an_agent_that_finds_all_alive() -> None:
    step = "20:49:47 step 145 loss 2.80"
    stalled = verdict(r0=step, r7=step, agent__n2="21:20:00 heartbeat ok; 4/4 workers alive")
    assert (stalled.cls, stalled.job_action) == (FailureClass.HANG_SILENT, JobAction.CAPTURE_RETRY)
    going = verdict(r0=step, r7=step, agent__n2="20:49:50 heartbeat ok; 4/4 workers alive")
    assert going.cls is FailureClass.NO_FAILURE


def test_a_suspicion_is_taken_back_when_the_job_fails_the_same_elsewhere() -> None:
    found = merged(
        "attempt 11: 8/8 tasks parked in first train step, no output for 300 s\n"
        "hosts attempt 10: leaf71-a leaf180-a\nhosts attempt 11 (leaf71 excluded): leaf180-a leaf200-a"
    )
    assert (found.cls, found.node_action) == (FailureClass.HANG_INIT, NodeAction.NONE)
    assert "leaf71-a" in found.why


def test_the_same_failure_follows_a_node_or_the_job() -> None:
    failing = "attempt {} node {}: RuntimeError: CUDA error: unspecified launch failure"
    lemon = merged("\n".join([failing.format(1, "n4"), "attempt 2 node n5: ok", failing.format(3, "n4")]))
    assert (lemon.culprit.names, lemon.node_action) == (("n4",), NodeAction.DIAGNOSE)
    everywhere = merged("\n".join(failing.format(number, f"n{number}") for number in (1, 2, 3)))
    assert everywhere.node_action in {NodeAction.NONE, NodeAction.WATCH}


@pytest.mark.parametrize(
    ("path", "cls", "action"),
    [
        ("/ckpt/run7/step_12/model.safetensors", FailureClass.CHECKPOINT_CORRUPT, JobAction.ROLLBACK),
        ("/root/.cache/huggingface/hub/models--x/model.safetensors", FailureClass.DATA_INPUT, JobAction.STOP),
    ],
)
def test_a_damaged_file_is_rolled_back_only_when_it_is_the_jobs_own(
    path: str, cls: FailureClass, action: JobAction
) -> None:
    found = merged(f"loading {path}\nSafetensorError: Error while deserializing header: MetadataIncompleteBuffer")
    assert (found.cls, found.job_action) == (cls, action)


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: Error(s) in loading state_dict for LlamaForCausalLM:",
        "_pickle.UnpicklingError: Weights only load failed.",
        "ZeRORuntimeException: The checkpoint used a DP world size of 32 but the current world size is 24.",
        "OSError: [Errno 116] Stale file handle: '/ckpt/step_4500/model.pt'",
        "OSError: [Errno 28] No space left on device: '/ckpt/step_4500/model.pt'",
        "KeyError: 'iteration'",
    ],
)
def test_a_good_checkpoint_is_never_rolled_past(text: str) -> None:
    assert merged(f"resuming from /ckpt/step_4500\n{text}").job_action is not JobAction.ROLLBACK


@pytest.mark.parametrize(
    "text",
    [
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0x80 in position 0: invalid start byte",
        "NonMatchingChecksumError: checksum mismatch for /data/corpus/part-0001.jsonl.zst",
        "zipfile.BadZipFile: File is not a zip file",
    ],
)
def test_a_damaged_file_that_nothing_calls_a_checkpoint_is_data(text: str) -> None:
    assert (merged(text).cls, merged(text).job_action) == (FailureClass.DATA_INPUT, JobAction.STOP)


def test_transfers_that_failed_from_the_start_are_the_set_up_and_later_ones_a_link() -> None:
    text = "NCCL WARN NET/IB: Got completion from peer 192.0.2.5<53908> with status=12 opcode=129 len=1 vendor err 129"
    assert merged(f"t+4s {text}").cls is FailureClass.FABRIC_CONFIG
    later = merged(f"[4] t+6h12m {text}")
    assert (later.cls, later.node_action) == (FailureClass.FABRIC_LINK, NodeAction.WATCH)


def test_a_killed_process_is_out_of_memory_only_when_the_kernel_says_so() -> None:
    launcher = "failed (exitcode: -9) local_rank: 0 (pid: 410126) of binary: /usr/bin/python3"
    unsure = verdict(launcher=launcher, r0="saving checkpoint step 500 ...")
    assert (unsure.cls, unsure.confidence) == (FailureClass.KILLED, Confidence.LOW)
    sure = verdict(
        launcher=launcher,
        r0="saving checkpoint step 500 ...",
        dmesg__a01="[856341.7] Out of memory: Killed process 410126 (python) total-vm:79905000kB",
    )
    assert (sure.cls, sure.culprit.names) == (FailureClass.HOST_OOM, ("rank 0",))
    assert "saving checkpoint step 500" in sure.why


def test_trouble_that_the_job_lived_through_is_not_its_end() -> None:
    found = merged(
        "[0] 10:00:01 wandb: Network error (ReadTimeout), Max retries exceeded with url\n"
        "[0] 10:30:00 step 900 loss 1.8\n[0] 10:30:01 ValueError: shapes differ"
    )
    assert found.cls is FailureClass.USER_CODE


def test_what_is_missing_on_one_node_only_is_that_nodes() -> None:
    text = "[n3:16] FileNotFoundError: [Errno 2] No such file or directory: '/mnt/data/shards/17.tar'\n"
    alone, everywhere = merged(text), merged(text + "[n1:0] step 1 loss 9.1")
    assert alone.cls is FailureClass.USER_CONFIG
    assert (everywhere.cls, everywhere.culprit.names) == (FailureClass.NODE_CONFIG, ("n3",))


def test_probes_speak_through_the_same_table() -> None:
    seen = Observation(
        signal="nvml-recovery-node-reboot",
        origin=Origin(kind=SourceKind.AGENT, node="n9"),
        at=Moment(clock=Clock.DAY, at_s=1.0),
    )
    found = classifier().verdict([], [seen])
    assert (found.cls, found.culprit.names, found.rule) == (FailureClass.HARDWARE_GPU, ("n9",), "driver-verdict")


def test_an_xid_is_understood_as_monitors_say_it_too() -> None:
    found = merged("gpu-health: XID 79 on GPU 3 of node n7")
    assert (found.cls, found.culprit.names) == (FailureClass.HARDWARE_GPU, ("n7",))
    assert merged("health: XID 13 events: 0").group is Group.NONE


def test_a_blind_monitor_is_no_fault_of_the_node() -> None:
    found = merged("Error connecting to nv-hostengine: Host engine connection invalid/disconnected")
    assert (found.cls, found.node_action) == (FailureClass.UNKNOWN, NodeAction.NONE)


@pytest.mark.parametrize(
    ("text", "cls"),
    [
        ("RuntimeError: The expected number of heads is 16 but got 8", FailureClass.USER_CODE),
        ("RuntimeError: driver said no", FailureClass.UNKNOWN),
    ],
)
def test_an_unknown_error_is_the_programs_with_low_confidence_unless_it_speaks_of_machines(
    text: str, cls: FailureClass
) -> None:
    found = merged(text)
    assert (found.cls, found.confidence) == (cls, Confidence.LOW)


def test_an_exception_is_found_although_its_text_speaks_of_loading() -> None:
    assert merged("OSError: Can't load tokenizer for 'org/model' from '/x/y'").cls is FailureClass.USER_CONFIG


@pytest.mark.parametrize(
    ("text", "cls"),
    [
        ("jobs in this queue may be preempted at any time\n[1] KeyError: 'x'", FailureClass.USER_CODE),
        ("use scancel 1234 to cancel the job\n[1] step 1 loss 2.0", FailureClass.NO_FAILURE),
        ("Spot interruption handler started", FailureClass.NO_FAILURE),
        ("memory.events: low 0 high 0 max 0 oom 0 oom_kill 0", FailureClass.NO_FAILURE),
        ("[0] step 10 loss nan\n[0] step 11 loss 2.0\n[0] ValueError: bad", FailureClass.USER_CODE),
        ("[0] step 10 loss nan\n[0] step 11 loss nan", FailureClass.NUMERICAL_DIVERGENCE),
        ("OSError: [Errno 107] Transport endpoint is not connected: '/mnt/gcs/x'", FailureClass.STORAGE_FAULT),
        ("unable to write to file </torch_12_5>: No space left on device (28)", FailureClass.NODE_CONFIG),
        ("subprocess.CalledProcessError: Command 'x' died with <Signals.SIGKILL: 9>.", FailureClass.KILLED),
        ("process 2 terminated with signal SIGABRT", FailureClass.CRASH_NATIVE),
        ("XlaRuntimeError: RESOURCE_EXHAUSTED: Error allocating device buffer: 2.00G", FailureClass.GPU_OOM),
    ],
)
def test_what_is_only_spoken_of_is_told_from_what_happened(text: str, cls: FailureClass) -> None:
    assert merged(text).cls is cls


def test_a_hardware_error_of_days_before_the_last_step_did_not_end_the_job() -> None:
    xid = "[Fri May  {} 11:43:09 2025] NVRM: Xid (PCI:0000:1b:00): 48, pid=9, name=python, DBE"
    rank = "2025-05-05 11:44:00 step 9 loss 2\n2025-05-05 11:44:01 KeyError: 'x'"
    assert verdict(dmesg__n1=xid.format(2), r0=rank).cls is FailureClass.USER_CODE
    assert verdict(dmesg__n1=xid.format(5), r0=rank).cls is FailureClass.HARDWARE_GPU


def test_only_consequences_say_whose_log_is_needed() -> None:
    text = "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."
    found = verdict(r4=text)
    assert (found.cls, found.job_action, found.node_action) == (
        FailureClass.UNKNOWN,
        JobAction.COLLECT,
        NodeAction.NONE,
    )
    assert found.missing


def test_every_treatment_is_bounded() -> None:
    assert all(0 <= treatment.attempts_max <= 20 for treatment in TREATMENT.values())
