"""What must hold of every move, seen from the world before it. Written from what was promised, not from the rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from celery_supervise.lifecycle import JUDGED, TABLE, Event, State, Ticket

from ..context import Model, time_over
from ..machine import RECIPIENTS, Clock, Fleet, Phase, Worker, World
from ..steps import NAMES, Step


class Moved(NamedTuple):
    """A move, and the world before it."""

    model: Model
    before: World
    step: Step

    @property
    def worker(self) -> Worker:
        """The worker that moves, as it was before."""
        return self.before.workers[NAMES.index(self.step.actor)]

    @property
    def after(self) -> Worker:
        """The worker that moves, as it is now."""
        return self.step.world.workers[NAMES.index(self.step.actor)]


_ONWARD = JUDGED | {Event.PARK, Event.GIVE_UP, Event.STALL_CANCEL, Event.STALL_FAIL, Event.SHELVE}
_HOLDERS = frozenset({"checkpoint", "ask", "complete", "fail", "retry", "hand_over", "replace", "replace_plainly"})


def the_table_has_the_move(moved: Moved) -> bool:
    """The state changes only by an event, and the event leads where the lifecycle says, ticket included."""
    job, after, event = moved.before.job, moved.step.world.job, moved.step.event
    if job is None or after is None:
        return event is None
    if event is None:
        return after.state is job.state
    move = TABLE[job.state].get(event)
    return move is not None and move.to is after.state and _as_said(move.ticket, job.ticket, after.ticket)


def _as_said(effect: Ticket, before: int, after: int) -> bool:
    return {
        Ticket.KEEP: after == before,
        Ticket.CLEAR: after == 0,
        Ticket.ISSUE: after not in (0, before),
        Ticket.ENSURE: after == before if before else after != 0,
    }[effect]


# --- ends ------------------------------------------------------------------------------------------------


def terminal_is_final(moved: Moved) -> bool:
    """A job that has ended keeps its outcome."""
    job, after = moved.before.job, moved.step.world.job
    return job is None or after is None or not job.terminal or after.state is job.state


def an_ended_attempt_keeps_its_outcome(moved: Moved) -> bool:
    """The history of attempts is not rewritten."""
    ended = [attempt for attempt in moved.before.attempts if attempt.outcome]
    return not ended or all(moved.step.world.attempt(each.token) in (each, None) for each in ended)


def only_the_told_is_pruned(moved: Moved) -> bool:
    """Nobody waits for ever for an outcome whose row is gone."""
    return moved.step.verb != "prunes" or moved.before.ghost.told > 0


def the_finisher_is_not_called_stale(moved: Moved) -> bool:
    """Who ended the job and never got the reply learns that it did, and tells Celery."""
    job = moved.before.job
    if moved.step.verb != "reads back" or job is None or not job.terminal or not moved.worker.teller:
        return True
    return moved.after.phase is Phase.TELL


# --- claims ----------------------------------------------------------------------------------------------


def a_claim_consumes_its_own_ticket(moved: Moved) -> bool:
    """The row's, due, released; and the attempt names it, so that reports can."""
    if moved.step.event is not Event.CLAIM:
        return True
    job, attempt = moved.before.row, moved.step.world.current
    return attempt is not None and attempt.ticket == job.ticket and job.due and job.released


def an_attempt_runs_the_arguments_of_the_row(moved: Moved) -> bool:
    """No late message of an earlier retry brings its old ones."""
    return moved.step.event is not Event.CLAIM or moved.after.args == moved.before.row.args


def a_ticket_that_is_out_is_not_replaced(moved: Moved) -> bool:
    """Its message is on the way; it would be turned away."""
    job, after = moved.before.job, moved.step.world.job
    return job is None or after is None or not job.ticket or after.ticket in (0, job.ticket)


def a_call_without_header_is_not_lost(moved: Moved) -> bool:
    """Until there is a row, its message is all there is of it."""
    before, after = moved.before, moved.step.world
    if before.job is not None or after.job is not None or before.tombstone or moved.step.actor == "broker":
        return True
    return _headerless(after) >= _headerless(before)


def _headerless(world: World) -> int:
    return sum(message.ticket == 0 for message in world.messages)


def what_was_rolled_back_does_not_run(moved: Moved) -> bool:
    """A message of ours without its row makes none."""
    return not (moved.step.verb == "makes the row" and moved.step.note == "header")


# --- judgement -------------------------------------------------------------------------------------------


def what_is_over_goes_nowhere_else(moved: Moved) -> bool:
    """After a cancel request or the deadline no judged event comes through."""
    job = moved.before.job
    return job is None or moved.step.event not in _ONWARD or not (job.cancel or time_over(job))


def what_is_over_gets_no_more_time(moved: Moved) -> bool:
    """Nothing brings back a job, or a question, whose time is over."""
    return moved.step.event is not Event.EXTEND or not time_over(moved.before.row)


def a_pause_is_honoured_at_the_next_boundary(moved: Moved) -> bool:
    """Pausing after the current step is what the person was told."""
    boundary = moved.step.event in (Event.CLAIM, Event.CHECKPOINT, Event.ASK)
    return not boundary or not moved.before.row.pause


def nobody_parks_on_an_old_pause(moved: Moved) -> bool:
    """Only on one that nobody has taken back and no park has served."""
    return moved.step.event is not Event.PARK or moved.before.ghost.pause


def only_what_is_over_expires(moved: Moved) -> bool:
    """By the deadline, by `start_by` at a claim, or by the time of a question that is still open."""
    if moved.step.event is not Event.EXPIRE:
        return True
    job = moved.before.row
    unanswered = job.wait is Clock.PASSED and job.open_question is not None
    return job.deadline is Clock.PASSED or job.start_by is Clock.PASSED or unanswered


# --- people ----------------------------------------------------------------------------------------------


def an_answer_is_judged_fairly(moved: Moved) -> bool:
    """Accepted while the question is open and its time runs, refused when not, and for no other reason."""
    if moved.step.verb != "answers":
        return True
    job = moved.before.row
    open_now = job.open_question is not None and not time_over(job)
    return open_now == (moved.step.note == "202")


def a_vote_is_judged_fairly(moved: Moved) -> bool:
    """Accepted of those whose question it is, while it is open and its time runs, and of nobody else."""
    if not moved.step.verb.startswith("votes as"):
        return True
    question, who = moved.before.row.open_question, int(moved.step.verb[-1])
    may = question is not None and who in RECIPIENTS[question.people] and not time_over(moved.before.row)
    return may == (moved.step.note == "202")


def an_answer_counts_for_what_was_asked(moved: Moved) -> bool:
    """What was approved is what runs: the same content, for the same arguments."""
    if moved.step.verb != "ask" or moved.step.note != "answered":
        return True
    job, worker = moved.before.row, moved.worker
    asked = next(each for each in job.questions if (each.key, each.run) == (worker.pc, job.run))
    return (asked.content, asked.args) == (moved.before.content, worker.args)


def a_pause_can_be_taken_back(moved: Moved) -> bool:
    """As long as the job has not parked for it."""
    refused = moved.step.verb == "resumes" and moved.step.note != "202"
    return not refused or moved.before.row.terminal or not moved.before.row.pause


def a_second_resume_is_refused(moved: Moved) -> bool:
    """Of two people who resume, one is told that it was the other."""
    return moved.step.event is not Event.RESUME or not moved.before.row.ticket


# --- attempts --------------------------------------------------------------------------------------------


def no_stale_attempt_writes(moved: Moved) -> bool:
    """Only the attempt that the row names moves the job."""
    if moved.step.event is None or moved.step.verb not in _HOLDERS:
        return True
    return moved.worker.token == moved.before.row.token


def a_committed_step_is_not_run_again(moved: Moved) -> bool:
    """By the current attempt: one that lost its lease cannot know, and is refused at its checkpoint."""
    job = moved.before.job
    if moved.step.verb != "checkpoint" or job is None or moved.worker.token != job.token:
        return True
    return all((node.step, node.run) != (moved.worker.pc, job.run) for node in job.nodes)


def only_a_dead_or_silent_attempt_is_lost(moved: Moved) -> bool:
    """Not one whose process lives and whose lease runs."""
    if moved.step.event not in (Event.LOSE, Event.GIVE_UP):
        return True
    attempt = moved.before.current
    alive = attempt is not None and any(worker.token == attempt.token for worker in moved.before.workers)
    return attempt is not None and not (attempt.live and alive)


def only_its_own_parent_renews_a_lease(moved: Moved) -> bool:
    """Nobody keeps alive what somebody else has started."""
    attempt = moved.before.current
    if moved.step.verb != "renews the lease" or attempt is None:
        return True
    return moved.step.actor in NAMES and moved.worker.token == attempt.token


def a_report_acts_on_its_own_message(moved: Moved) -> bool:
    """What Celery's parent side says of one message ends no other one's job."""
    if moved.step.verb != "reports a failure" or moved.step.event is None:
        return True
    job, after = moved.before.row, moved.step.world
    told = set(moved.before.reports) - set(after.reports)
    return job.state is not State.RUNNING and all(report.ticket == job.ticket for report in told)


# --- holds and versions ----------------------------------------------------------------------------------


def nothing_that_is_held_starts(moved: Moved) -> bool:
    """But for what a statement let out that began before the hold, until the relay's next pass."""
    before = moved.before
    if moved.step.event is not Event.CLAIM or not before.row.held:
        return True
    let_out = before.chances.let_out < moved.model.scenario.start.chances.let_out
    return let_out and not before.ghost.looked


def code_runs_its_own_version(moved: Moved) -> bool:
    """No body finds what another version's code has saved, but by way of its migration."""
    after = moved.step.world.job
    if moved.step.event is not Event.CLAIM or moved.before.fleet is None or after is None:
        return True
    return moved.step.note == f"version {after.version}"


def only_what_workers_have_left_is_shelved(moved: Moved) -> bool:
    """Since it was last told to go on; and only once that is long ago."""
    if moved.step.event is not Event.SHELVE:
        return True
    return moved.before.ghost.left and moved.before.row.left is Clock.PASSED


def only_what_can_run_is_taken_up(moved: Moved) -> bool:
    """By the code of some worker that has not refused it."""
    if moved.step.event is not Event.REISSUE:
        return True
    job, fleet = moved.before.row, moved.before.fleet
    own = fleet is Fleet.BOTH or (fleet is Fleet.NEW) == (job.version == 1)
    return own or (moved.model.scenario.migrates and fleet is Fleet.NEW and not job.refused)


MOVE_CHECKS: tuple[Callable[[Moved], bool], ...] = (
    terminal_is_final,
    an_ended_attempt_keeps_its_outcome,
    only_the_told_is_pruned,
    the_finisher_is_not_called_stale,
    a_claim_consumes_its_own_ticket,
    an_attempt_runs_the_arguments_of_the_row,
    a_ticket_that_is_out_is_not_replaced,
    a_call_without_header_is_not_lost,
    what_was_rolled_back_does_not_run,
    what_is_over_goes_nowhere_else,
    what_is_over_gets_no_more_time,
    a_pause_is_honoured_at_the_next_boundary,
    nobody_parks_on_an_old_pause,
    only_what_is_over_expires,
    an_answer_is_judged_fairly,
    a_vote_is_judged_fairly,
    an_answer_counts_for_what_was_asked,
    a_pause_can_be_taken_back,
    a_second_resume_is_refused,
    no_stale_attempt_writes,
    a_committed_step_is_not_run_again,
    only_a_dead_or_silent_attempt_is_lost,
    only_its_own_parent_renews_a_lease,
    a_report_acts_on_its_own_message,
    nothing_that_is_held_starts,
    code_runs_its_own_version,
    only_what_workers_have_left_is_shelved,
    only_what_can_run_is_taken_up,
)
