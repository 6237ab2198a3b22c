"""The state machine against the design's own words, written out here a second time. No database."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_supervise import lifecycle
from celery_supervise.lifecycle import (
    BORN,
    JUDGED,
    OPEN,
    TABLE,
    TERMINAL,
    Event,
    Facts,
    Move,
    State,
    Ticket,
    judge,
    move,
    sources,
    verdicts,
)

DESIGN = """
    pending  claim           running    claimed          clear
    pending  park            parked     parked           clear
    pending  request_pause   pending    pause_requested  keep
    pending  withdraw_pause  pending    pause_withdrawn  keep
    pending  request_cancel  cancelled  cancelled        clear
    pending  cancel          cancelled  cancelled        clear
    pending  fail            failed     failed           clear
    pending  expire          expired    expired          clear
    pending  give_up         failed     failed           clear
    pending  shelve          parked     parked           clear
    pending  extend          pending    extended         keep

    running  checkpoint      running    checkpoint       keep
    running  ask             parked     asked            clear
    running  park            parked     parked           clear
    running  request_pause   running    pause_requested  keep
    running  withdraw_pause  running    pause_withdrawn  keep
    running  request_cancel  running    cancel_requested keep
    running  cancel          cancelled  cancelled        clear
    running  complete        completed  completed        clear
    running  fail            failed     failed           clear
    running  retry           pending    retry_scheduled  issue
    running  hand_over       pending    handed_over      issue
    running  expire          expired    expired          clear
    running  lose            pending    lease_lost       issue
    running  give_up         failed     failed           clear
    running  stall_cancel    cancelled  cancelled        clear
    running  stall_fail      failed     failed           clear
    running  replace         pending    replaced         issue
    running  replace_plain   completed  completed        clear
    running  extend          running    extended         keep

    parked   claim           running    claimed          clear
    parked   park            parked     parked           clear
    parked   vote            parked     voted            keep
    parked   answer          parked     answered         ensure
    parked   resume          parked     resumed          ensure
    parked   request_pause   parked     pause_requested  keep
    parked   withdraw_pause  parked     pause_withdrawn  keep
    parked   request_cancel  cancelled  cancelled        clear
    parked   cancel          cancelled  cancelled        clear
    parked   fail            failed     failed           clear
    parked   expire          expired    expired          clear
    parked   give_up         failed     failed           clear
    parked   shelve          parked     parked           clear
    parked   reissue         parked     resumed          ensure
    parked   withdraw        parked     withdrawn        ensure
    parked   extend          parked     extended         keep
    parked   reassign        parked     reassigned       keep
"""
"""Design §3, protocol 2 and 29: from, event, to, log entry, ticket. All of them bump the generation but one."""

QUIET = {Event.CHECKPOINT, Event.SETTLE, Event.ERASE}
"""What moves no generation (the end of the protocol): a busy job can always be paused."""


def designed() -> dict[tuple[State, Event], Move]:
    """The moves of the text above, and the two that are left to a job that has ended."""
    rows = [line.split() for line in DESIGN.splitlines() if line.strip()]
    moves = {
        (State(state), Event(event)): Move(State(to), log, Ticket(ticket), generation=Event(event) not in QUIET)
        for state, event, to, log, ticket in rows
    }
    for state, (event, log) in product(TERMINAL, ((Event.SETTLE, "settled"), (Event.ERASE, "erased"))):
        moves[state, event] = Move(state, log, Ticket.CLEAR, generation=False)
    return moves


def test_the_table_is_the_design() -> None:
    """The closed table has exactly the moves that the design and the protocol name, with their effects."""
    table = {(state, event): found for state, moves in TABLE.items() for event, found in moves.items()}
    assert table == designed()


def test_every_state_stands_in_the_table() -> None:
    """A state without moves is written down as such, not left out."""
    assert set(TABLE) == set(State)
    assert set(State) == OPEN | TERMINAL
    assert OPEN.isdisjoint(TERMINAL)


def test_the_table_is_closed() -> None:
    """Nobody can add a move at run time."""
    with pytest.raises(TypeError):
        TABLE[State.COMPLETED] = {}  # type: ignore[index]  # that it cannot be set is the point


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_the_end_is_final(state: State) -> None:
    """From an end no move leads anywhere else, and none is seen as a change."""
    assert all(found.to is state and not found.generation for found in TABLE[state].values())


@pytest.mark.parametrize("state", sorted(OPEN))
def test_every_open_job_can_be_ended(state: State) -> None:
    """Cancel, expiry and failure reach a job wherever it stands: none can be stuck for ever."""
    ends = {found.to for event, found in TABLE[state].items() if event in (Event.CANCEL, Event.EXPIRE, Event.FAIL)}
    assert ends == {State.CANCELLED, State.EXPIRED, State.FAILED}


def test_a_job_is_born_pending() -> None:
    """A new job waits, with the right to be claimed once."""
    assert Move(State.PENDING, "submitted", Ticket.ISSUE) == BORN


@pytest.mark.parametrize("event", list(Event))
def test_a_pending_job_has_a_ticket(event: Event) -> None:
    """Whatever leads to pending issues a ticket or keeps it; whatever leads to running or an end leaves none."""
    for state in sources(event):
        found = TABLE[state][event]
        if found.to is State.PENDING:
            assert found.ticket in ({Ticket.KEEP} if state is State.PENDING else {Ticket.ISSUE})
        elif found.to is not State.PARKED:
            assert found.ticket is Ticket.CLEAR or state is State.RUNNING


@pytest.mark.parametrize("event", list(Event))
def test_sources_and_moves_agree(event: Event) -> None:
    """`sources` names the states in which `move` finds something, and no others."""
    assert sources(event) == {state for state in State if move(state, event) is not None}
    assert sources(event), "an event that nothing can follow is none"


def test_only_an_end_ends() -> None:
    """A move ends the job if and only if it leads to one of the four ends."""
    for found in designed().values():
        assert found.ends is (found.to in {State.COMPLETED, State.FAILED, State.EXPIRED, State.CANCELLED})


# --- judgement -------------------------------------------------------------------------------------------

HOLDER = {
    Event.CHECKPOINT,
    Event.ASK,
    Event.COMPLETE,
    Event.FAIL,
    Event.RETRY,
    Event.HAND_OVER,
    Event.REPLACE,
    Event.REPLACE_PLAIN,
}
PAUSES = {Event.CLAIM, Event.CHECKPOINT, Event.ASK}


def test_what_is_judged() -> None:
    """All that a holder does, the claim and the loss of an attempt are judged; what people do is not."""
    assert HOLDER | {Event.CLAIM, Event.LOSE} == JUDGED


facts = st.builds(Facts, *[st.booleans()] * 4)


@given(event=st.sampled_from(sorted(JUDGED)), row=facts)
def test_the_order_of_judgement(event: Event, row: Facts) -> None:
    """Protocol 12: a cancel before time, time before a pause, a pause before a hand-over, these before the event."""
    expected = event
    if row.cancel_requested:
        expected = Event.CANCEL
    elif row.time_over:
        expected = Event.EXPIRE
    elif row.pause_requested and event in PAUSES:
        expected = Event.PARK
    elif row.hand_over and event is Event.CHECKPOINT:
        expected = Event.HAND_OVER
    assert judge(event, row) is expected


@given(event=st.sampled_from(sorted(set(Event) - JUDGED)), row=facts)
def test_what_is_not_judged_happens(event: Event, row: Facts) -> None:
    """What people ask for is refused by the table or happens: no flag changes it into something else."""
    assert judge(event, row) is event


@pytest.mark.parametrize("event", sorted(JUDGED))
def test_a_verdict_can_be_carried_out(event: Event) -> None:
    """Wherever an event is possible, whatever it may be judged to be is possible, too."""
    for state, verdict in product(sources(event), verdicts(event)):
        assert move(state, verdict) is not None


@given(event=st.sampled_from(sorted(Event)), row=facts)
def test_verdicts_are_all_that_judge_gives(event: Event, row: Facts) -> None:
    """The statements are built from `verdicts`: no judgement falls outside."""
    assert judge(event, row) in verdicts(event)
    assert verdicts(event)[-1] is event


# --- stop reasons ----------------------------------------------------------------------------------------


def test_stop_reasons() -> None:
    """The words of the missions: what a parked or expired job waits, or waited, for."""
    assert lifecycle.awaiting("k") == "awaiting_user_answer:k"
    assert lifecycle.answered("k") == "answered:k"
    assert lifecycle.withdrawn("k") == "withdrawn:k"
    assert lifecycle.resume_requested("user_paused") == "resume_requested:user_paused"
    assert lifecycle.expired("awaiting_user_answer:k") == "expired:awaiting_user_answer:k"
    assert lifecycle.USER_PAUSED == "user_paused"


@pytest.mark.parametrize(("prior", "otherwise"), [(None, "deadline"), ("", "deadline")])
def test_an_expiry_always_says_why(prior: str | None, otherwise: str) -> None:
    """A job that expired while nothing held it up says which time was over, never nothing."""
    assert lifecycle.expired(prior) == f"expired:{otherwise}"
    assert lifecycle.expired(prior, "max_active") == "expired:max_active"


@pytest.mark.parametrize("word", [*State, *Event, *Ticket])
def test_words_print_as_themselves(word: State | Event | Ticket) -> None:
    """In every supported Python a state in an f-string is its word: they go into SQL, logs and messages."""
    assert f"{word}" == str(word) == word.value
