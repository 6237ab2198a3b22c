"""The verb `rerun`: a job that has ended, once more. The service decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from celery_supervise.bulk import Outcome, Target
from celery_supervise.lookup import find_job
from celery_supervise.supervisor import Supervisor

from .many import or_many
from .render import escape, to_json
from .verb import NAME, as_option, generation_option, json_option, runtime, say, verb


def _many(supervisor: Supervisor, jobs: Sequence[Target], given: Mapping[str, Any]) -> Sequence[Outcome]:
    how = {name: given[name] for name in ("from_checkpoints", "with_callbacks")}
    return supervisor.rerun_each(jobs, actor=given["actor"], **how)


@verb("rerun 3f2a", "rerun 3f2a --from-checkpoints --as ann", "rerun --task shop.pay --state failed --dry-run")
@click.argument("job_id", metavar="[JOB]", type=NAME, required=False)
@click.option("--from-checkpoints", is_flag=True, help="Keep what it had done and what people had answered.")
@click.option("--with-callbacks", is_flag=True, help="Also go on with what was linked to it: link, chain, chord.")
@generation_option
@as_option
@json_option
@or_many("rerun", _many, lambda made: f"runs again, as {escape(made.job_id)}")
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
