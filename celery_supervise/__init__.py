"""celery-supervise: durable, parkable, answerable Celery tasks by `base=SupervisedTask`."""

from .errors import (
    BodyError,
    ConfigError,
    Conflict,
    ControlFlow,
    DatabaseUnavailable,
    InvalidAnswer,
    InvalidInput,
    JobEnded,
    JobExists,
    JobExpired,
    JobFailed,
    JobLost,
    JobNotFound,
    NotAllowed,
    NotMigrated,
    NotSerialisable,
    QuestionClosed,
    QuestionNotFound,
    StepTimedOut,
    SuperviseError,
    TooLarge,
)
from .install import Supervisor, install
from .lifecycle import State
from .options import Options
from .task import SupervisedTask

__all__ = [
    "BodyError",
    "ConfigError",
    "Conflict",
    "ControlFlow",
    "DatabaseUnavailable",
    "InvalidAnswer",
    "InvalidInput",
    "JobEnded",
    "JobExists",
    "JobExpired",
    "JobFailed",
    "JobLost",
    "JobNotFound",
    "NotAllowed",
    "NotMigrated",
    "NotSerialisable",
    "Options",
    "QuestionClosed",
    "QuestionNotFound",
    "State",
    "StepTimedOut",
    "SuperviseError",
    "SupervisedTask",
    "Supervisor",
    "TooLarge",
    "install",
]
