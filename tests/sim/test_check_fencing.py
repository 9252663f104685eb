"""The checkers of fencing find what they should, and nothing in a lawful history."""

from __future__ import annotations

import pytest

from evertrain.chaos.sim.check.dispatch import CommitBeforeDispatch
from evertrain.chaos.sim.check.fencing import (
    GenerationsGrow,
    LaunchersHeedFences,
    NothingStaleIsRegistered,
    OneGangPerNode,
    OneLeaderCommits,
)
from evertrain.chaos.sim.history import LauncherEnded, Led, Ordered, OrderObeyed, WorkersEnded, WorkersStarted
from evertrain.controlplane.core.ids import Instant, NodeName
from evertrain.controlplane.core.state import Cancel, JobState
from support.checked import Bench, a_checkpoint, a_gang, a_job


def obeyed(term: int, generation: int, launcher: str = "n1-L1") -> OrderObeyed:
    return OrderObeyed("n1", "a.1", term, generation, "run", launcher)


class TestOneGangPerNode:
    def test_a_group_after_another_is_lawful(self) -> None:
        bench = Bench(OneGangPerNode)
        bench.see(WorkersStarted("n1", "a.1", 1, "n1-L1"), WorkersStarted("n2", "a.1", 1, "n2-L1"))
        bench.see(WorkersEnded("n1", "a.1", 1, "ordered to stop"), WorkersStarted("n1", "b.1", 1, "n1-L2"))
        assert not bench.said

    def test_two_generations_on_one_node_are_told(self) -> None:
        bench = Bench(OneGangPerNode)
        bench.see(WorkersStarted("n1", "a.1", 1, "n1-L1"), WorkersStarted("n1", "a.1", 2, "n1-L2"))
        assert "while it runs those of a.1 generation 1" in bench.said

    def test_two_jobs_on_one_node_are_told(self) -> None:
        bench = Bench(OneGangPerNode)
        bench.see(WorkersStarted("n1", "a.1", 1, "n1-L1"), WorkersStarted("n1", "b.1", 1, "n1-L2"))
        (violation,) = bench.violations
        assert (violation.job, violation.node) == ("b", "n1")


class TestGenerationsGrow:
    def test_form_break_and_form_again_is_lawful(self) -> None:
        bench = Bench(GenerationsGrow)
        bench.commit(a_job(nodes=()))
        bench.commit(a_job())
        bench.commit(a_job(gang=None))
        bench.commit(a_job(nodes=("n2", "n3"), generation=2))
        bench.commit(a_job(nodes=(), generation=2, state=JobState.SUCCEEDED))
        bench.commit(a_job(nodes=(), incarnation=2))
        assert not bench.said

    @pytest.mark.parametrize(
        ("after", "said"),
        [
            (a_job(nodes=("n1", "n2"), generation=1), "generation 1 after 2"),
            (a_job(nodes=("n1", "n3"), generation=2), "generation 2 was formed twice: on n1, n2 and on n1, n3"),
            (a_job(nodes=(), incarnation=2), "took the place of a.1, which had not ended"),
        ],
    )
    def test_what_must_not_follow_generation_2_is_told(self, after: object, said: str) -> None:
        bench = Bench(GenerationsGrow)
        bench.commit(a_job(nodes=()))
        bench.commit(a_job(generation=2))
        bench.commit(after)  # type: ignore[arg-type]
        assert said in bench.said

    def test_a_generation_that_was_over_is_not_formed_again(self) -> None:
        bench = Bench(GenerationsGrow)
        bench.commit(a_job(nodes=()))
        bench.commit(a_job())
        bench.commit(a_job(gang=None))
        bench.commit(a_job())
        assert "generation 1 was formed again" in bench.said

    def test_an_ended_job_that_goes_on_is_told(self) -> None:
        bench = Bench(GenerationsGrow)
        bench.commit(a_job(nodes=()))
        bench.commit(a_job(nodes=(), state=JobState.CANCELLED))
        bench.commit(a_job())
        assert "a.1 had ended (cancelled) and is running" in bench.said

    def test_workers_of_a_generation_that_nobody_committed_are_told(self) -> None:
        bench = Bench(GenerationsGrow)
        bench.commit(a_job(nodes=()))
        bench.commit(a_job())
        bench.see(WorkersStarted("n1", "a.1", 1, "n1-L1"))
        assert not bench.said
        bench.see(WorkersStarted("n1", "a.1", 2, "n1-L1"))
        assert "started generation 2, the newest committed is 1" in bench.said


class TestOneLeaderCommits:
    def test_terms_that_grow_are_lawful_and_two_may_believe_that_they_lead(self) -> None:
        bench = Bench(OneLeaderCommits)
        bench.commit(by="c1", term=1)
        bench.commit(by="c2", term=2)
        bench.see(Led("c1", 1))
        assert not bench.said

    def test_a_commit_of_a_term_that_is_over_is_told(self) -> None:
        bench = Bench(OneLeaderCommits)
        bench.commit(by="c2", term=2)
        bench.commit(by="c1", term=1)
        assert "revision 2 is a commit of term 1, which was over: term 2 (c2) had committed" in bench.said

    def test_one_term_for_two_is_told(self) -> None:
        bench = Bench(OneLeaderCommits)
        bench.commit(by="c1", term=1)
        bench.commit(by="c2", term=1)
        assert "c1 and c2 both commit with term 1" in bench.said


class TestLaunchersHeedFences:
    def test_newer_and_equal_orders_are_lawful_and_each_launcher_has_its_own_fence(self) -> None:
        bench = Bench(LaunchersHeedFences)
        bench.see(obeyed(1, 1), obeyed(1, 2), obeyed(2, 2), obeyed(2, 2), obeyed(1, 1, "n1-L2"))
        bench.see(LauncherEnded("n1", "a.1", "n1-L1", "it ended as ordered"))
        assert not bench.said

    @pytest.mark.parametrize("older", [obeyed(1, 9), obeyed(2, 2)])
    def test_an_older_term_or_generation_is_told(self, older: OrderObeyed) -> None:
        bench = Bench(LaunchersHeedFences)
        bench.see(obeyed(2, 3), older)
        assert "after term 2, generation 3" in bench.said


class TestNothingStaleIsRegistered:
    def test_a_checkpoint_of_the_present_generation_is_lawful_even_if_it_leaves_with_it(self) -> None:
        bench = Bench(NothingStaleIsRegistered)
        bench.commit(a_job())
        bench.commit(a_job(checkpoints=(a_checkpoint(10),)))
        bench.commit(a_job(generation=2, checkpoints=(a_checkpoint(10), a_checkpoint(20))))
        assert not bench.said

    def test_a_checkpoint_of_the_generation_before_is_told(self) -> None:
        bench = Bench(NothingStaleIsRegistered)
        bench.commit(a_job(generation=2))
        bench.commit(a_job(generation=2, checkpoints=(a_checkpoint(10, generation=1),)))
        assert "step 10 of generation 1 was registered while 2 ran" in bench.said

    def test_a_checkpoint_while_nothing_runs_is_told(self) -> None:
        bench = Bench(NothingStaleIsRegistered)
        bench.commit(a_job(gang=None))
        bench.commit(a_job(gang=None, checkpoints=(a_checkpoint(10),)))
        assert "while no generation ran" in bench.said


class TestCommitBeforeDispatch:
    RUN = (("a.1", 1, "run"),)

    def bench(self) -> Bench:
        bench = Bench(CommitBeforeDispatch)
        bench.commit(a_job(nodes=()))
        bench.commit(a_job(nodes=(), reserved=("n1", "n2"), state=JobState.PLACING))
        return bench

    def test_orders_of_committed_states_are_lawful(self) -> None:
        bench = self.bench()
        bench.see(Ordered("c1", 1, "n1", (("a.1", 0, "prepare"),)), Ordered("c1", 1, "n9", ()))
        bench.commit(a_job())
        bench.see(Ordered("c1", 1, "n1", self.RUN))
        cancel = Cancel(by="ann", reason="", at=Instant(5.0))
        bench.commit(a_job(cancel=cancel))
        bench.see(Ordered("c1", 1, "n1", ()))
        assert not bench.said

    def test_an_order_that_comes_before_its_commit_is_told(self) -> None:
        bench = self.bench()
        bench.see(Ordered("c1", 1, "n1", self.RUN))
        assert "ordered n1 to run a.1 generation 1, which no committed state says" in bench.said

    def test_a_stop_that_comes_before_its_commit_is_told(self) -> None:
        bench = self.bench()
        for generation in range(1, 6):  # what is older than a few commits is no excuse
            bench.commit(a_job(generation=generation, gang=a_gang("n1", "n2", generation=generation)))
        bench.see(Ordered("c1", 1, "n1", ()))
        assert "ordered n1 to stop everything" in bench.said

    def test_a_leader_whose_term_is_over_may_send_what_was_once_committed_and_nothing_else(self) -> None:
        bench = self.bench()
        for generation in range(1, 6):
            bench.commit(a_job(generation=generation), term=2, by="c2")
        bench.see(Ordered("c1", 1, "n1", self.RUN))
        assert not bench.said
        bench.see(Ordered("c1", 1, "n1", (("a.1", 6, "run"),)))
        assert "run a.1 generation 6" in bench.said

    def test_a_node_that_changes_hands_in_one_commit_is_its_new_holders(self) -> None:
        bench = self.bench()
        bench.commit(a_job())
        bench.commit(
            a_job("b", nodes=(), reserved=(NodeName("n1"),)),
            a_job(nodes=("n2",), generation=2),
        )
        bench.see(Ordered("c1", 1, "n1", (("b.1", 0, "prepare"),)), Ordered("c1", 1, "n2", (("a.1", 2, "run"),)))
        assert not bench.said
