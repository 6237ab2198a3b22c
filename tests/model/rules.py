"""The rules of the protocol that can be taken out one at a time, to see that something breaks then.

Not in this model, since one job's steps do not show them: the form of the statements, their locks and snapshots
(6, 7, 9, 10: here each is one atomic step; ``tests/postgres`` has them), ids and idempotency (17, 18), what many jobs
share (21, 24's counts, 25: see ``quotas.py``), cleanups of what one attempt alone makes (27), replayed operations
(31), erasing and roles (30), ETags (32), and that PARKED is stored before the commit (26): stored late it is healed by
``restore_after_park``, only later.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple


def _rule(protocol: str, shows: str, text: str) -> bool:
    return field(default=True, metadata={"protocol": protocol, "shows": shows, "text": text})


@dataclass(frozen=True)
class Rules:
    """Which rules hold. All by default; `without` takes one out.

    Each field names the rules of the protocol it stands for, the scenario where its absence shows, its text.
    """

    # --- tickets and claims
    ticket_in_row: bool = _rule("1", "races", "the ticket is compared in the statement that claims")
    claim_by_ticket: bool = _rule("1, 3", "other_args", "a claim needs the message's own ticket to be the row's")
    claim_when_due: bool = _rule("1, 4", "restored", "a claim needs a ticket that is due")
    claim_when_released: bool = _rule("25", "restored", "a claim needs a ticket that was released")
    claim_clears_ticket: bool = _rule("2", "races", "a claim clears the ticket in the same UPDATE")
    end_clears_ticket: bool = _rule("2", "races", "a terminal move clears the ticket in the same UPDATE")
    pend_issues_ticket: bool = _rule("2", "retry", "what goes back to pending gets its ticket in the same UPDATE")
    answer_issues_ticket: bool = _rule("2, S02", "races", "so does what is answered")
    ticket_kept: bool = _rule("2", "races", "answer and resume keep a ticket that is out: coalesce")
    header_never_creates: bool = _rule("3", "rolled_back", "a message with our header never makes a row")
    headerless_never_claims: bool = _rule("3", "headerless", "a message without it never claims a row that exists")
    tombstone: bool = _rule("3", "headerless", "nor makes one again that was pruned")
    fresh_ticket: bool = _rule("3, 22", "headerless", "it gets a ticket of its own on receipt")
    no_expires: bool = _rule("4", "clock", "no message carries Celery's expires")
    read_back: bool = _rule("5", "unknown", "an unknown commit is read back by its own ids")
    unknown_tells_nothing: bool = _rule("5", "unknown", "what stays unknown is left to others: Celery is told nothing")
    headerless_requeued: bool = _rule("5", "headerless", "without the database such a message goes back to its queue")
    # --- judgement
    judge_claim: bool = _rule("12", "clock", "a claim is judged")
    judge_checkpoint: bool = _rule("12", "races", "a checkpoint is judged")
    judge_ask: bool = _rule("12", "races", "an ask is judged")
    judge_complete: bool = _rule("12", "races", "a complete is judged")
    judge_fail: bool = _rule("12", "races", "a failure is judged")
    judge_retry: bool = _rule("12", "races", "a retry is judged")
    judge_hand_over: bool = _rule("12", "hand_over", "a hand-over is judged again in its own statement")
    judge_lose: bool = _rule("12", "crash", "a lost attempt's job is judged")
    judge_stall: bool = _rule("12", "more_time", "the end of a job that makes no progress is judged")
    judge_expire: bool = _rule("12", "clock", "the sweep's expiry is judged")
    cancel_first: bool = _rule("12", "clock", "cancel is judged before expiry")
    expiry_before_pause: bool = _rule("12", "clock", "expiry is judged before pause")
    pause_before_hand_over: bool = _rule("12", "hand_over", "pause is judged before hand-over")
    judged_checkpoint_saved: bool = _rule("12", "races", "a checkpoint that is overruled is saved all the same")
    park_clears_pause: bool = _rule("13", "races", "parking for a pause clears the request")
    resume_clears_pause: bool = _rule("13", "races", "resume clears a pause requested while parked")
    resume_withdraws_pause: bool = _rule("13", "races", "resume of a job that goes on withdraws the pause")
    claim_parks_on_pause: bool = _rule("13", "races", "a claim that sees a pause parks")
    checkpoint_parks_on_pause: bool = _rule("12", "races", "a checkpoint that sees a pause parks")
    ask_parks_on_pause: bool = _rule("13", "races", "an ask that sees a pause parks before asking")
    resume_needs_answer: bool = _rule("14", "races", "resume is refused while a question is open")
    resume_once: bool = _rule("14", "races", "resume is refused while a ticket is out")
    ask_reuses_question: bool = _rule("14", "races", "an ask finds its own question again")
    answer_sets_reason: bool = _rule("14", "races", "an answer replaces the stop reason")
    resume_sets_reason: bool = _rule("14", "races", "so does a resume; it does not clear it")
    expired_keeps_reason: bool = _rule("14", "clock", "an expired job says why it stood still, also where it did not")
    digest: bool = _rule("15", "drift", "an answer counts only for the content it was given to")
    new_run: bool = _rule("15", "other_args", "a retry with other arguments is a new run id")
    complete_again: bool = _rule("16", "unknown", "a repeated complete returns the outcome")
    # --- answers and the user's other moves
    answer_locks_job: bool = _rule("6, design 3", "answers", "an answer is decided under the job's lock")
    answer_by_clock: bool = _rule("8", "answers", "an answer is judged by the question's time after the lock")
    answer_clears_wait: bool = _rule("8", "answers", "an answer clears the time of its question")
    extend_by_clock: bool = _rule(
        "8", "more_time", "more time is given only before it is over, by the clock at the lock"
    )
    expire_locks_job: bool = _rule("6, 12", "answers", "the sweep decides expiry under the job's lock")
    cancel_locks_job: bool = _rule("6", "races", "a cancel decides under the job's lock")
    end_closes_question: bool = _rule("14, S31", "races", "a terminal move closes the open question")
    terminal_is_final: bool = _rule("30", "races", "no statement moves a job that has ended")
    prune_when_settled: bool = _rule("30", "headerless", "only a settled job is pruned")
    # --- fencing and leases
    fence_checkpoint: bool = _rule("design 3", "zombie", "a checkpoint needs the current token")
    fence_ask: bool = _rule("design 3", "zombie_asks", "an ask needs the current token")
    fence_complete: bool = _rule("design 3", "zombie", "a complete needs the current token")
    fence_fail: bool = _rule("design 3", "zombie", "a failure needs the current token")
    fence_retry: bool = _rule("design 3", "zombie", "a retry needs the current token")
    fence_hand_over: bool = _rule("design 3", "hand_over", "a hand-over needs the current token")
    attempt_is_final: bool = _rule("19, 30", "reports_of_ends", "an attempt that has ended keeps its outcome")
    reap_by_lease: bool = _rule("19", "zombie", "reap decides by the lease in the statement that ends the attempt")
    heartbeat_by_incarnation: bool = _rule("20", "deaths", "only the process that claimed renews the lease")
    heartbeat_if_active: bool = _rule("20", "deaths", "a parent renews only what its children still run")
    lose_by_token: bool = _rule("20, 22", "reports", "a child's death ends its own attempt only")
    report_by_own_process: bool = _rule("22", "reports", "a report acts on the attempt of its own process only")
    hasten_by_own_process: bool = _rule("22, 26", "reports", "only its own death ends a teller's time at once")
    report_by_ticket: bool = _rule("22", "reports", "a report about a message acts through its ticket only")
    fence_heartbeat: bool = _rule("19, 20", "zombie", "a parent renews the attempts of its own children only")
    skipped_is_unknown: bool = _rule("19", "zombie", "a lease that a heartbeat skipped is not lost")
    losses_bounded: bool = _rule("design 3", "crash", "a job that was lost too often fails")
    retries_bounded: bool = _rule("design 3", "retry", "a job that was retried too often fails")
    hand_over_is_free: bool = _rule("design 3", "hand_over", "a hand-over uses up no attempt")
    # --- replacements
    fence_replace: bool = _rule("29", "replaced", "a replacement needs the current token")
    judge_replace: bool = _rule("12, 29", "replaced", "a replacement is judged")
    replacement_is_new_run: bool = _rule("15, 29", "replaced", "a replacement is another run: nothing is remembered")
    replacement_has_its_retries: bool = _rule("29", "replaced", "and has retries and losses of its own")
    replacement_commits_first: bool = _rule("5, 29", "replaced", "it commits before it is published")
    fence_replace_plainly: bool = _rule("29", "replaced_plainly", "so does what is no job need the token")
    judge_replace_plainly: bool = _rule("12, 29", "replaced_plainly", "and is judged")
    sent_on_first: bool = _rule("29", "replaced_plainly", "what is no job is sent before its job is completed")
    replaced_is_settled: bool = _rule("26, 29", "replaced_plainly", "nobody but itself tells Celery of its end")
    replaced_cleans_up: bool = _rule("27, 29", "replaced_makes", "whoever settles a job so drops its cleanups")
    # --- relay
    relay_takes_first: bool = _rule("23", "relay", "a relay stamps a ticket before it publishes it")
    publish_unlocked: bool = _rule("23", "relay", "no lock is held while publishing")
    republish: bool = _rule("24", "retry", "a lost message is published again")
    republish_on_evidence: bool = _rule("24", "relay", "only what the broker has lost is published again")
    retry_commits_first: bool = _rule("5, Celery", "retry", "a retry commits before it publishes")
    # --- settling
    settled_after_told: bool = _rule("26", "telling", "settled_at is stamped after Celery was told")
    settle_taken_at_end: bool = _rule("26", "telling", "the ending statement names its teller")
    settle_by_swap: bool = _rule("26", "telling", "any other teller first wins a compare-and-swap")
    settle_renewed: bool = _rule("26", "telling", "the teller's time is renewed while it is active")
    settle_sweep: bool = _rule("26", "deaths", "what nobody told is told by the sweep")
    restore_after_park: bool = _rule("26", "results", "who stored PARKED restores the outcome that the row has")
    restore_after_retry: bool = _rule("26", "results", "so does who left for a retry, after Celery stored RETRY")
    restore_after_drop: bool = _rule("26", "results_crash", "so does who drops a message of a job that has ended")
    # --- deciding together
    votes_counted_as_judged: bool = _rule("31", "votes", "a vote is judged by the votes it was counted with, or anew")
    one_vote_a_person: bool = _rule("31", "votes", "a person's new vote replaces their old one")
    votes_agree: bool = _rule("31", "votes", "only votes for the same answer count together")
    vote_by_recipient: bool = _rule("design 3", "votes", "who may vote is read under the lock")
    reassign_voids_votes: bool = _rule("31", "votes", "given to others, a question has no votes")
    withdraw_closes_question: bool = _rule("14", "votes", "a question that is taken back is closed")
    withdraw_sets_reason: bool = _rule("14", "votes", "and the reason no longer says that it is open")
    withdraw_issues_ticket: bool = _rule("2", "votes", "and the job gets its ticket in the same UPDATE")
    # --- cleanups
    cleanup_before_effect: bool = _rule("27", "cleanups_crash", "a cleanup is registered before the effect")
    cleanup_sent: bool = _rule("27", "cleanups", "it is sent when the job ends without completing")
    cleanup_dropped: bool = _rule("27", "cleanups", "it is dropped when the job completes")
    late_cleanup_sent: bool = _rule("27", "cleanups", "a stale attempt's rejection sends it if the job has ended so")
    cleanup_spares_winner: bool = _rule("27", "cleanups", "else it sends nothing that another attempt needs")
    # --- holds
    hold_takes_back: bool = _rule("25", "holds", "a hold takes back what was let out")
    issued_under_hold: bool = _rule("25", "holds", "a ticket that is issued under a hold is not let out")
    released_under_hold: bool = _rule("25", "holds", "nor does the relay let it out")
    relay_takes_back: bool = _rule("25", "holds", "each pass takes back what a statement under way let out")
    taken_back_unsent: bool = _rule("25", "holds", "what is taken back counts as not sent")
    relay_releases: bool = _rule("25", "holds", "what nothing holds back is let out")
    # --- versions
    claim_by_version: bool = _rule("28", "versions", "a claim needs a version that the code can run")
    leave_sends_again: bool = _rule("28", "versions", "what a worker leaves goes round again")
    leave_keeps_ticket: bool = _rule("28", "versions", "its ticket stays in the row")
    claim_ends_grace: bool = _rule("28", "versions", "a claim ends the time that a job had been left")
    resume_ends_grace: bool = _rule("28", "versions", "so does a resume")
    shelve: bool = _rule("28", "versions", "what nobody can run is parked after the grace")
    shelve_after_grace: bool = _rule("28", "versions", "and not before")
    shelve_spares_the_late: bool = _rule("12, 28", "versions", "what is over is not parked, it expires")
    take_up: bool = _rule("28", "versions", "a worker that can run what was parked so lets it go on")
    take_up_what_it_can: bool = _rule("28", "versions", "and nothing else")
    migration_with_claim: bool = _rule("28", "migrations", "what a migration changes commits with the claim")
    migration_by_ticket: bool = _rule("28", "migrations", "of the ticket that was out when it read")
    refused_stays: bool = _rule("28", "refusals", "what its migration refused this code does not take up again")
    # --- log
    log_under_lock: bool = _rule("11", "answers", "every entry of the log takes the job's lock")
    log_counts_entries: bool = _rule("11", "races", "the log's counter moves by the number of entries")


class Rule(NamedTuple):
    """One rule: its field in `Rules`, where the protocol has it, the scenario that needs it, its text."""

    name: str
    protocol: str
    shows: str
    text: str


class Backup(NamedTuple):
    """A rule that another one makes redundant: `promise` breaks only without both, not without `partner` alone."""

    rule: str
    partner: str
    promise: str
    reason: str


BACKUPS = (
    Backup(
        rule="ticket_kept",
        partner="resume_once",
        promise="a_ticket_that_is_out_is_not_replaced",
        reason="an open question has no ticket beside it, and a second resume is refused, so nothing meets one",
    ),
)
"""The only rules that nothing breaks without. They stay in the protocol for the day their partner changes."""

RULES = tuple(Rule(each.name, **each.metadata) for each in fields(Rules))


def without(*names: str) -> Rules:
    """All rules but those."""
    return replace(Rules(), **dict.fromkeys(names, False))
