"""What must hold of every world that has a row. Written from what was promised, not from the rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from celery_supervise.lifecycle import USER_PAUSED, State

from ..context import Model, time_over
from ..machine import Cleanup, Job, Phase, Published, Settle, World


class Seen(NamedTuple):
    """A world, its row, and what it was reached under."""

    model: Model
    world: World
    job: Job

    def happened(self, *faults: str) -> bool:
        """Whether a fault of one of those kinds has happened."""
        return any(self.times(fault) for fault in faults)

    def times(self, fault: str) -> int:
        """How often a fault of that kind has happened."""
        left: int = getattr(self.world.faults, fault)
        start: int = getattr(self.model.scenario.start.faults, fault)
        return start - left

    def copies(self) -> int:
        """How many messages of the row's ticket there are, in the broker and in workers' hands."""
        ticket = self.job.ticket
        held = sum(worker.ticket == ticket for worker in self.world.workers)
        return held + sum(message.ticket == ticket for message in self.world.messages)


# --- what the database's own checks say ------------------------------------------------------------------


def terminal_has_no_ticket(seen: Seen) -> bool:
    """A job that has ended can never be claimed."""
    return not (seen.job.terminal and seen.job.ticket)


def pending_has_a_ticket(seen: Seen) -> bool:
    """A job that waits for a worker can be claimed."""
    return seen.job.state is not State.PENDING or bool(seen.job.ticket)


def running_has_a_token_and_no_ticket(seen: Seen) -> bool:
    """Running, and only running, belongs to an attempt."""
    running = seen.job.state is State.RUNNING
    return running == bool(seen.job.token) and not (running and seen.job.ticket)


def running_has_its_attempt(seen: Seen) -> bool:
    """The attempt that a running job names has not ended."""
    current = seen.world.current
    return seen.job.state is not State.RUNNING or (current is not None and not current.outcome)


def only_a_parked_job_asks(seen: Seen) -> bool:
    """At most one question is open, and only while the job is parked; none outlives its job."""
    asking = [question for question in seen.job.questions if question.status == "open"]
    return not asking or (seen.job.state is State.PARKED and len(asking) == 1)


def the_log_is_gapless(seen: Seen) -> bool:
    """The log's numbers are those of its entries."""
    return not seen.world.ghost.log_gap


# --- why a job stands still ------------------------------------------------------------------------------


def parked_says_why(seen: Seen) -> bool:
    """A parked job has a reason."""
    return seen.job.state is not State.PARKED or bool(seen.job.reason)


def parked_waits_for_somebody(seen: Seen) -> bool:
    """For a worker, for an answer, for the person who paused it, or for code that can run it."""
    waits = seen.job.ticket or seen.job.open_question or seen.job.reason == USER_PAUSED or _shelved(seen.job)
    return seen.job.state is not State.PARKED or bool(waits)


def _shelved(job: Job) -> bool:
    return (job.reason or "").startswith("incompatible_version:")


def the_reason_names_the_open_question(seen: Seen) -> bool:
    """It awaits an answer exactly as long as its question is open."""
    awaiting = seen.job.state is State.PARKED and (seen.job.reason or "").startswith("awaiting_user_answer:")
    return awaiting == (seen.job.open_question is not None)


def expired_says_what_it_waited_for(seen: Seen) -> bool:
    """An expired job keeps why it stood still, or says which time it was."""
    return seen.job.state is not State.EXPIRED or (seen.job.reason or "").startswith("expired:")


# --- what people were promised ---------------------------------------------------------------------------


def a_requested_cancel_is_never_carried_on(seen: Seen) -> bool:
    """Nothing is scheduled, parked or finished over a cancel request."""
    return not seen.job.cancel or seen.job.state in (State.RUNNING, State.CANCELLED)


def an_accepted_cancel_wins(seen: Seen) -> bool:
    """From the accepted request on no other end is possible."""
    return not (seen.world.ghost.cancel and seen.job.terminal) or seen.job.state is State.CANCELLED


def an_accepted_answer_is_kept(seen: Seen) -> bool:
    """Never lost, never replaced by another one."""
    kept = {(each.key, each.answer) for each in seen.job.questions if each.status == "answered"}
    return kept.issuperset(seen.world.ghost.answers)


def as_many_as_needed_have_decided(seen: Seen) -> bool:
    """People who have said just that, since the question was given to them; and enough of them decide at once."""
    said = [value for _, value in seen.world.ghost.votes]
    answers = [each.answer for each in seen.job.questions if each.status == "answered"]
    needed = seen.model.scenario.approvals
    if needed == 1:
        return True
    waits = seen.job.open_question is not None
    return all(said.count(answer) >= needed for answer in answers) and not (
        waits and any(said.count(value) >= needed for value in said)
    )


def a_pause_is_owed_once(seen: Seen) -> bool:
    """A request lives until the job has parked for it, or somebody took it back."""
    return seen.job.terminal or seen.job.pause == seen.world.ghost.pause


# --- what bodies were promised ---------------------------------------------------------------------------


def an_accepted_checkpoint_is_kept(seen: Seen) -> bool:
    """Whatever a holder was told is saved, is saved."""
    saved = {node.step for node in seen.job.nodes if node.run == seen.job.run}
    return seen.job.terminal or saved.issuperset(seen.world.ghost.accepted)


def decisions_belong_to_the_arguments(seen: Seen) -> bool:
    """No checkpoint and no question of other arguments is found again."""
    run = seen.job.run
    decided = [node.args for node in seen.job.nodes if node.run == run]
    decided += [question.args for question in seen.job.questions if question.run == run]
    return seen.job.terminal or all(args == seen.job.args for args in decided)


def retries_are_counted_and_bounded(seen: Seen) -> bool:
    """Only a retry uses up a retry: no park, no pause, no hand-over, no death."""
    return seen.job.retries == seen.world.ghost.retries <= seen.model.scenario.retry_limit


def losses_are_counted_and_bounded(seen: Seen) -> bool:
    """Only a loss uses up a loss."""
    return seen.job.losses == seen.world.ghost.losses <= seen.model.scenario.lost_limit


def nothing_is_lost_without_a_cause(seen: Seen) -> bool:
    """Each lost attempt has its own death, freeze, stall, or commit that was never read back."""
    causes = sum(seen.times(fault) for fault in ("crash", "freeze", "stall", "unknown"))
    return seen.world.ghost.losses <= causes


# --- what Celery and the world outside see ---------------------------------------------------------------


def it_ends_once(seen: Seen) -> bool:
    """One published outcome, one terminal entry in the log."""
    return seen.world.ghost.ends == int(seen.job.terminal)


def celery_is_told_what_the_row_says(seen: Seen) -> bool:
    """Neither too early nor anything else."""
    return not seen.world.ghost.told or seen.world.ghost.told_as == seen.job.state.value


def celery_is_told_once_unless_its_teller_dies(seen: Seen) -> bool:
    """Callbacks, chains and chords continue exactly once; at least once if a teller dies or freezes over it."""
    return seen.world.ghost.told < 2 or seen.world.ghost.teller_died


def settled_was_told(seen: Seen) -> bool:
    """`settled_at` is never stamped before Celery knows."""
    return seen.job.settle is not Settle.DONE or seen.world.ghost.told > 0 or seen.world.ghost.elsewhere


def what_goes_on_elsewhere_is_told_there(seen: Seen) -> bool:
    """Celery hears of the replacement, and of nobody else."""
    return not (seen.world.ghost.elsewhere and seen.world.ghost.told)


def what_goes_on_elsewhere_was_sent(seen: Seen) -> bool:
    """A job that ended for something else has not ended for nothing."""
    ghost = seen.world.ghost
    return not ghost.elsewhere or bool(ghost.sent_on) or _about_to_send(seen)


def _about_to_send(seen: Seen) -> bool:
    return any(worker.phase is Phase.REPLACED for worker in seen.world.workers)


def it_is_sent_on_once_unless_something_fails(seen: Seen) -> bool:
    """Twice only where its sender died, froze, or was thought to have."""
    return seen.world.ghost.sent_on < 2 or seen.happened("crash", "freeze", "stall", "unknown")


def the_told_owes_no_cleanup(seen: Seen) -> bool:
    """Whoever settled the job has sent its cleanup, or dropped it."""
    return seen.job.settle is not Settle.DONE or seen.world.cleanup is not Cleanup.OPEN


def a_published_ticket_has_its_message(seen: Seen) -> bool:
    """Unless something was lost, or died holding it."""
    if seen.job.published is not Published.SENT or not seen.job.ticket or seen.copies():
        return True
    if seen.world.fleet is not None and time_over(seen.job):
        return True  # code that cannot run it leaves what is over to the sweep
    ended_by_celery = seen.world.chances.fails_early < seen.model.scenario.start.chances.fails_early
    return ended_by_celery or seen.happened("crash", "lose", "flush", "away", "unknown")


def a_ticket_is_published_once(seen: Seen) -> bool:
    """Unless a message was doubled, or seemed to be lost, or the row forgot it."""
    if not seen.job.ticket or seen.copies() < 2 or seen.model.scenario.restored:
        return True
    if seen.world.fleet is not None or seen.world.person.hold < seen.model.scenario.start.person.hold:
        return True  # left to others, or held, it goes out once more, whatever became of the first
    return seen.happened("double", "crash", "freeze", "lose", "flush", "away", "unknown")


def a_pruned_job_stays_pruned(seen: Seen) -> bool:
    """No late message makes it again."""
    return not seen.world.ghost.pruned


def what_was_made_is_there_if_the_job_completed(seen: Seen) -> bool:
    """Once all is told and run: there if the job completed, gone if it did not."""
    world, job = seen.world, seen.job
    at_work = any(worker.phase is not Phase.IDLE for worker in world.workers)
    if "make" not in seen.model.scenario.program or at_work or world.owed or job.settle is not Settle.DONE:
        return True
    if world.ghost.elsewhere:  # maybe before it made anything
        return world.cleanup is not Cleanup.SENT
    return world.output == (job.state is State.COMPLETED)


WORLD_CHECKS: tuple[Callable[[Seen], bool], ...] = (
    terminal_has_no_ticket,
    pending_has_a_ticket,
    running_has_a_token_and_no_ticket,
    running_has_its_attempt,
    only_a_parked_job_asks,
    the_log_is_gapless,
    parked_says_why,
    parked_waits_for_somebody,
    the_reason_names_the_open_question,
    expired_says_what_it_waited_for,
    a_requested_cancel_is_never_carried_on,
    an_accepted_cancel_wins,
    an_accepted_answer_is_kept,
    as_many_as_needed_have_decided,
    a_pause_is_owed_once,
    an_accepted_checkpoint_is_kept,
    decisions_belong_to_the_arguments,
    retries_are_counted_and_bounded,
    losses_are_counted_and_bounded,
    nothing_is_lost_without_a_cause,
    it_ends_once,
    celery_is_told_what_the_row_says,
    celery_is_told_once_unless_its_teller_dies,
    settled_was_told,
    what_goes_on_elsewhere_is_told_there,
    what_goes_on_elsewhere_was_sent,
    it_is_sent_on_once_unless_something_fails,
    the_told_owes_no_cleanup,
    a_published_ticket_has_its_message,
    a_ticket_is_published_once,
    a_pruned_job_stays_pruned,
    what_was_made_is_there_if_the_job_completed,
)
