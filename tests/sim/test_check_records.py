"""The checkers of store, story and requests find what they should, and nothing in a lawful history."""

from __future__ import annotations

import pytest

from evertrain.chaos.sim.check.books import Books
from evertrain.chaos.sim.check.core import CoreHolds
from evertrain.chaos.sim.check.records import StoryIsWhole, WritesStay
from evertrain.chaos.sim.check.requests import AppliedOnce, ToldOnce
from evertrain.chaos.sim.history import Acknowledged, Answered, Asked, Committed, Loaded
from evertrain.controlplane.core.commands import Answer, Refusal
from evertrain.controlplane.core.events import CancelAsked, DrainAsked, JobSubmitted, UndrainAsked
from evertrain.controlplane.core.ids import Instant, JobName, NodeName
from evertrain.controlplane.core.state import Cancel, Cordon
from evertrain.controlplane.store import codec
from evertrain.controlplane.store.api import Key, Kind, Revision, Snapshot, Write
from support.checked import Bench, a_checkpoint, a_job, a_line, a_node, a_request, a_spec, broken, watched

AT = Instant(0.0)
ANN = Cancel(by="ann", reason="", at=Instant(5.0))
BOB = Cordon(by="bob", reason="fan is loud", at=Instant(5.0), drain=True)
SUBMIT = Asked(JobSubmitted(at=AT, request_id="r1", spec=a_spec(), by="ann"), "c1")
CANCEL = Asked(CancelAsked(at=AT, request_id="r2", job=JobName("a"), by="ann", reason=""), "c1")
DRAIN = Asked(DrainAsked(at=AT, request_id="r3", node=NodeName("n1"), by="bob", reason="x", deadline_s=1.0), "c1")
UNDRAIN = Asked(UndrainAsked(at=AT, request_id="r4", node=NodeName("n1"), by="bob"), "c1")


class TestWritesStay:
    def setup_method(self) -> None:
        self.records: dict[Key, bytes] = {}
        self.bench = Bench(lambda ground: WritesStay(ground, snapshot=self.snapshot))

    def snapshot(self) -> Snapshot:
        return Snapshot(revision=Revision(self.bench.revision), records=self.records)

    def take(self, committed: Committed) -> None:
        """The store as it should be."""
        self.records |= {write.key: write.value for write in committed.writes if write.value is not None}

    def test_reads_that_show_every_commit_are_lawful(self) -> None:
        self.take(self.bench.commit(a_job(nodes=())))
        self.bench.see(Acknowledged("c1", 1, 1))
        self.take(self.bench.commit(a_job(), term=2, by="c2"))
        self.bench.see(Loaded("c2", 2, dict(self.records)), Acknowledged("c2", 2, 2))
        self.bench.checker.finish()
        assert not self.bench.said

    def test_a_store_that_forgets_a_write_is_told_when_a_leader_reads(self) -> None:
        self.bench.commit(a_job(nodes=()), nodes=[a_node()])
        self.bench.see(Loaded("c2", 1, {}))
        assert "c2 read revision 1: node/n1, job/a are not as they were written last" in self.bench.said

    def test_an_older_value_is_told_at_the_end(self) -> None:
        self.take(self.bench.commit(a_job(nodes=())))
        self.bench.commit(a_job())
        self.bench.checker.finish()
        (violation,) = self.bench.violations
        assert violation.job == "a"

    def test_a_read_of_an_older_revision_is_told(self) -> None:
        self.take(self.bench.commit(a_job(nodes=())))
        old = dict(self.records)
        self.bench.commit(a_job())
        self.bench.see(Loaded("c2", 1, old))
        assert "revision 2 had been committed" in self.bench.said

    def test_an_acknowledgement_of_nothing_or_of_anothers_commit_is_told(self) -> None:
        self.bench.commit(a_job(nodes=()))
        self.bench.see(Acknowledged("c1", 1, 2), Acknowledged("c2", 2, 1))
        assert "revision 2 was acknowledged, the newest commit is 1" in self.bench.said
        assert "it is a commit of c1, term 1" in self.bench.said

    def test_a_revision_that_is_left_out_and_a_record_that_is_removed_are_told(self) -> None:
        self.bench.commit(a_job(nodes=()))
        self.bench.revision = 5
        self.bench.write(Write(Key(Kind.JOB, "a"), None))
        assert "revision 6 follows 1" in self.bench.said
        assert "the record of job a was removed" in self.bench.said


class TestStoryIsWhole:
    def test_numbered_lines_are_lawful(self) -> None:
        bench = Bench(StoryIsWhole)
        bench.see(a_line(1), a_line(2), a_line(3, term=2))
        assert not bench.said

    def test_a_gap_a_repeat_and_an_older_term_are_told(self) -> None:
        bench = Bench(StoryIsWhole)
        bench.see(a_line(1, term=2), a_line(3, term=2), a_line(3, term=2), a_line(4, term=1))
        assert "line 3 follows 1" in bench.said
        assert "line 3 follows 3" in bench.said
        assert "is of term 1, after term 2" in bench.said


class TestAppliedOnce:
    def bench(self) -> Bench:
        bench = Bench(AppliedOnce)
        bench.commit(nodes=[a_node()])
        bench.see(SUBMIT)
        bench.commit(a_job(nodes=()), requests=[a_request("r1", "submit", "a")])
        return bench

    def test_requests_that_are_applied_with_their_record_are_lawful(self) -> None:
        bench = self.bench()
        bench.see(Answered("r1", "c1", Answer(target="a")), DRAIN, CANCEL, UNDRAIN)
        bench.commit(nodes=[a_node(cordon=BOB)], requests=[a_request("r3", "drain", "n1")])
        bench.commit(a_job(nodes=(), cancel=ANN), requests=[a_request("r2", "cancel", "a")])
        bench.commit(nodes=[a_node()], requests=[a_request("r4", "undrain", "n1")])
        bench.see(SUBMIT, Answered("r1", "c2", Answer(target="a")))
        assert not bench.said

    def test_a_request_that_is_accepted_twice_is_told(self) -> None:
        bench = self.bench()
        bench.commit(requests=[a_request("r1", "submit", "a")])
        assert "request r1 (submit a) was accepted a second time" in bench.said
        assert "1 submits of a were accepted, 0 jobs began with them" in bench.said

    def test_a_yes_that_no_commit_holds_is_told(self) -> None:
        bench = self.bench()
        bench.see(CANCEL, Answered("r2", "c1", Answer(target="a")))
        assert "c1 said yes to request r2, which no commit holds" in bench.said

    def test_a_request_that_was_refused_and_is_applied_all_the_same_is_told(self) -> None:
        bench = self.bench()
        bench.see(CANCEL, Answered("r2", "c1", Answer(target="a", refusal=Refusal.INVALID, text="it has ended")))
        assert not bench.said
        bench.commit(a_job(nodes=(), cancel=ANN), requests=[a_request("r2", "cancel", "a")])
        assert "accepted after the operator had been told no: it has ended" in bench.said

    @pytest.mark.parametrize(
        ("request_id", "verb", "target", "said"),
        [
            ("r9", "cancel", "a", "request r9 (cancel a) was accepted, and nobody had sent it"),
            ("r2", "cancel", "b", "it asked to cancel a"),
            ("r2", "cancel", "a", "a cancel of a was accepted, and it is not cancelled"),
            ("r3", "drain", "n1", "request r3 (drain n1) was accepted, not applied"),
        ],
    )
    def test_a_request_that_is_not_what_was_asked_or_not_applied_is_told(
        self, request_id: str, verb: str, target: str, said: str
    ) -> None:
        bench = self.bench()
        bench.see(CANCEL, DRAIN)
        bench.commit(requests=[a_request(request_id, verb, target)])
        assert said in bench.said

    def test_effects_without_a_request_are_told(self) -> None:
        bench = self.bench()
        bench.commit(a_job(nodes=(), cancel=ANN), a_job("b", nodes=()), nodes=[a_node(cordon=BOB)])
        assert "a.1 is cancelled without an accepted request" in bench.said
        assert "0 submits of b were accepted, 1 jobs began with them" in bench.said
        assert "the cordon of n1 changed without a request" in bench.said


class TestToldOnce:
    def test_one_line_for_each_is_lawful(self) -> None:
        bench = Bench(ToldOnce)
        bench.commit(a_job(nodes=()), requests=[a_request("r1", "submit", "a"), a_request("r3", "drain", "n1")])
        bench.see(a_line(1, "job.submitted", job="a"), a_line(2, "node.drain", node="n1"))
        bench.checker.finish()
        assert not bench.said

    def test_a_line_too_few_and_a_line_too_many_are_told(self) -> None:
        bench = Bench(ToldOnce)
        bench.commit(a_job(nodes=()), requests=[a_request("r1", "submit", "a")])
        bench.see(a_line(1, "node.drain", node="n1"))
        bench.checker.finish()
        assert "the story says 'node.drain of n1', and no drain was accepted with it" in bench.said
        assert "the story says nothing of an accepted submit a" in bench.said


class TestCoreHolds:
    def test_two_jobs_that_hold_one_node_are_told(self) -> None:
        bench = Bench(CoreHolds)
        bench.commit(a_job())
        assert not bench.said
        bench.commit(a_job("b", nodes=("n2", "n3")))
        assert "n2" in bench.said

    def test_a_node_that_changes_hands_in_one_commit_is_lawful(self) -> None:
        bench = Bench(CoreHolds)
        bench.commit(a_job(nodes=("n1", "n2")), a_job("b", nodes=("n3", "n4")))
        bench.commit(a_job(nodes=("n1", "n4"), generation=2), a_job("b", nodes=("n3", "n2"), generation=2))
        assert not bench.said


class TestBooks:
    def test_records_that_are_read_in_part_are_read_as_the_codec_reads_them_whole(self) -> None:
        async def script(world) -> None:  # type: ignore[no-untyped-def]
            world.nodes["n1"].lose_power()
            await world.sleep(600.0)
            world.nodes["n1"].boot()
            world.drain("n2")
            await world.sleep(1200.0)
            world.cancel("a")

        seen: list[Write] = []

        async def recorded(world) -> None:  # type: ignore[no-untyped-def]
            world.history.watch(lambda _at, what: seen.extend(what.writes) if isinstance(what, Committed) else None)
            await script(world)

        assert not broken(watched(recorded))
        books, jobs = Books(), [write for write in seen if write.key.kind is Kind.JOB]
        for revision, write in enumerate(jobs):
            (change,) = books.take(Committed("c1", 1, revision, "", [write])).jobs
            assert write.value is not None
            assert change.after == codec.read_job(write.key, write.value)
        assert len(jobs) > 50

    def test_a_list_of_names_that_changes_is_read_as_the_codec_reads_it(self) -> None:
        bench = Bench(CoreHolds)
        bench.commit(a_job(nodes=()))
        late = a_job(nodes=(), shunned=(NodeName("n2"),), last_nodes=(NodeName("n1"), NodeName("n2")))
        bench.commit(late)
        assert bench.books.jobs == {"a": late}

    def test_checkpoints_that_leave_at_the_front_are_kept_apart(self) -> None:
        bench = Bench(CoreHolds)
        many = tuple(a_checkpoint(step) for step in range(10, 100, 10))
        for first in range(4):
            bench.commit(a_job(checkpoints=many[first : first + 5]))
            assert bench.books.jobs["a"].checkpoints == many[first : first + 5]
