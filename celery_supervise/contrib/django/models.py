"""Our tables as Django's admin reads them. Unmanaged, and never written: a row that is saved here raises."""

from __future__ import annotations

from typing import Any, NoReturn

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models

from celery_supervise.lifecycle import State
from celery_supervise.schema import DEFAULT_SCHEMA, QUESTION_STATUSES

from .apps import LABEL


def table(name: str) -> str:
    """A table's name, as Django quotes it into one with its schema."""
    return f'{getattr(settings, "CELERY_SUPERVISE_SCHEMA", DEFAULT_SCHEMA)}"."{name}'


class ReadOnly(models.Model):
    """A row that only the service changes."""

    class Meta:
        """Django's."""

        abstract = True
        app_label = LABEL

    def save(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse."""
        raise TypeError("jobs are changed by the service alone: Supervisor.of(app)")

    def delete(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse."""
        self.save()


class Job(ReadOnly):
    """A row of `jobs`, its narrow part."""

    id = models.TextField(primary_key=True)
    namespace = models.TextField()
    task = models.TextField()
    owner = models.TextField(db_column="owner_id", null=True)
    state = models.TextField(db_column="current_state", choices=[(one, one) for one in State])
    reason = models.TextField(db_column="watchdog_stop_reason", null=True)
    generation = models.IntegerField()
    queue = models.TextField()
    node = models.TextField("last checkpoint", null=True)
    attempts = models.IntegerField(db_column="attempt_count")
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    deadline = models.DateTimeField(db_column="expires_at", null=True)
    progress_current = models.BigIntegerField(null=True)
    progress_total = models.BigIntegerField(null=True)
    progress_message = models.TextField(null=True)

    class Meta:
        """Django's."""

        app_label = LABEL
        managed = False
        db_table = table("jobs")
        default_permissions = ("view",)
        permissions = (("operate_job", "Can pause, resume and cancel jobs, and withdraw questions"),)

    def __str__(self) -> str:
        """Its id."""
        return str(self.id)


class Question(ReadOnly):
    """A row of `questions`, without what was asked and answered, which a codec may have encrypted."""

    id = models.UUIDField(primary_key=True)
    job = models.ForeignKey(Job, models.DO_NOTHING, db_constraint=False, related_name="questions")
    key = models.TextField(db_column="question_key")
    status = models.TextField(choices=[(one, one) for one in QUESTION_STATUSES])
    to = ArrayField(models.TextField(), db_column="assignees")
    approvals = models.SmallIntegerField()
    asked_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    answered_by = models.TextField(null=True)
    answered_at = models.DateTimeField(null=True)

    class Meta:
        """Django's."""

        app_label = LABEL
        managed = False
        db_table = table("questions")
        default_permissions = ("view",)
        permissions = (("answer_question", "Can answer questions"),)

    def __str__(self) -> str:
        """Its key."""
        return str(self.key)
