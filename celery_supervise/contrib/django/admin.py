"""Jobs and questions in Django's admin: to look at, and to act on through the service. Writes no row by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied

from celery_supervise.errors import SuperviseError
from celery_supervise.policy import Identity, Scope

from .app import settings, supervisor
from .authentication import authenticate
from .models import Job, Question


class Looking(admin.ModelAdmin):
    """What may be looked at by who may look, in this project's namespace. Nothing can be added, edited, deleted."""

    list_per_page = 50
    show_full_result_count = False

    def has_add_permission(self, request: Any) -> bool:  # noqa: ARG002  # Django's signature
        """Nobody's."""
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002  # likewise
        """Nobody's: a job is changed by actions."""
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002  # likewise
        """Nobody's: prune and erase know what may go."""
        return False

    def has_view_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002  # likewise
        """Of whoever the login gives any scope."""
        return _may(request, Scope.READONLY)

    def has_module_permission(self, request: Any) -> bool:
        """Likewise."""
        return _may(request, Scope.READONLY)

    def has_operate_permission(self, request: Any) -> bool:
        """Of operators: for the actions."""
        return _may(request, Scope.OPERATOR)

    def get_queryset(self, request: Any) -> Any:
        """Where the tables are."""
        return super().get_queryset(request).using(settings().database)

    def each(self, request: Any, rows: Iterable[Any], done: str, act: Callable[[Any, Identity], object]) -> None:
        """Act on each row by itself, and say what came of it."""
        identity = authenticate(request)
        if identity is None:
            raise PermissionDenied
        count = 0
        for row in rows:
            try:
                act(row, identity)
                count += 1
            except SuperviseError as error:
                self.message_user(request, f"{row}: {error}", messages.WARNING)
        if count:
            self.message_user(request, f"{done}: {count}.", messages.SUCCESS)


def _may(request: Any, wanted: Scope) -> bool:
    """Nobody may where the tables are in no database of Django's: `supervise_database` is not set."""
    identity = authenticate(request)
    return identity is not None and identity.scope.covers(wanted) and settings().database is not None


@admin.register(Job)
class JobAdmin(Looking):
    """Jobs."""

    list_display = ("id", "task", "state", "reason", "owner", "created_at", "finished_at")
    list_filter = ("state",)
    search_fields = ("id__startswith", "task__startswith", "owner__exact")
    ordering = ("-created_at", "-id")
    actions = ("pause", "resume", "cancel")

    def get_queryset(self, request: Any) -> Any:
        """This namespace's."""
        return super().get_queryset(request).filter(namespace=settings().namespace)

    @admin.action(description="Pause after the current step", permissions=["operate"])
    def pause(self, request: Any, jobs: Iterable[Job]) -> None:
        """Ask the chosen jobs to pause."""
        self.each(request, jobs, "Asked to pause", lambda job, by: supervisor().pause(job.id, actor=by.actor))

    @admin.action(description="Resume", permissions=["operate"])
    def resume(self, request: Any, jobs: Iterable[Job]) -> None:
        """Let the chosen jobs go on."""
        self.each(request, jobs, "Resumed", lambda job, by: supervisor().resume(job.id, actor=by.actor))

    @admin.action(description="Cancel", permissions=["operate"])
    def cancel(self, request: Any, jobs: Iterable[Job]) -> None:
        """Cancel the chosen jobs, or have their workers do it."""
        self.each(request, jobs, "Asked to cancel", lambda job, by: supervisor().cancel(job.id, actor=by.actor))


@admin.register(Question)
class QuestionAdmin(Looking):
    """Questions. They are answered where their form is: on our page, by our API, in the shop's own views."""

    list_display = ("key", "job", "status", "to", "asked_at", "expires_at", "answered_by")
    list_filter = ("status",)
    list_select_related = ("job",)
    search_fields = ("key__startswith", "job__id__startswith")
    ordering = ("-asked_at", "-id")
    actions = ("withdraw",)
    fields = ("prompt", *(field.name for field in Question._meta.fields))  # noqa: SLF001  # documented by Django
    readonly_fields = ("prompt",)

    def get_queryset(self, request: Any) -> Any:
        """Those of this namespace's jobs."""
        return super().get_queryset(request).filter(job__namespace=settings().namespace)

    @admin.display(description="prompt")
    def prompt(self, question: Question) -> str:
        """What is asked, in words, decrypted where a codec has encrypted it."""
        service = supervisor()
        content = service.content(service.question(question.id))
        return "(erased)" if content is None else str(content["prompt"])

    @admin.action(description="Take back, and have the job ask anew", permissions=["operate"])
    def withdraw(self, request: Any, questions: Iterable[Question]) -> None:
        """Withdraw the chosen questions."""
        self.each(request, questions, "Taken back", lambda one, by: supervisor().withdraw(one.id, actor=by.actor))
