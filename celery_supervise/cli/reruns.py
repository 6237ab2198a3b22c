"""The verb `rerun`: a job that has ended, once more. The service decides."""

from __future__ import annotations

import click

from celery_supervise.lookup import find_job

from .render import escape, to_json
from .verb import NAME, as_option, generation_option, json_option, runtime, say, verb


@verb("rerun 3f2a", "rerun 3f2a --from-checkpoints --as ann")
@click.argument("job_id", metavar="JOB", type=NAME)
@click.option("--from-checkpoints", is_flag=True, help="Keep what it had done and what people had answered.")
@click.option("--with-callbacks", is_flag=True, help="Also go on with what was linked to it: link, chain, chord.")
@generation_option
@as_option
@json_option
@click.pass_context
def rerun(
    ctx: click.Context,
    *,
    job_id: str,
    from_checkpoints: bool,
    with_callbacks: bool,
    expected_generation: int | None,
    actor: str,
    as_json: bool,
) -> None:
    """Run a job again that has ended.

    As a new job with the same input, from the start. The old one stays as it ended. Each can be run again once:
    after that, run its successor again.
    """
    supervisor = runtime(ctx).supervisor
    job = find_job(supervisor, job_id)
    made = supervisor.rerun(
        job.id,
        actor=actor,
        from_checkpoints=from_checkpoints,
        with_callbacks=with_callbacks,
        expected_generation=expected_generation,
    )
    if as_json:
        say(ctx, to_json({"job_id": made.job_id, "rerun_of": job.id, "state": made.state}))
    else:
        start = "its checkpoints" if from_checkpoints else "the start"
        say(ctx, f"{escape(job.id)}: runs again, from {start}, as {escape(made.job_id)}")
