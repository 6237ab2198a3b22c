"""celery-supervise: durable, parkable, answerable Celery tasks by `base=SupervisedTask`."""

from .errors import (
    BodyError,
    Busy,
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
    QuestionChanged,
    QuestionClosed,
    QuestionNotFound,
    QuotaExceeded,
    StepTimedOut,
    SuperviseError,
    TooLarge,
)
from .getting import JobParked
from .install import Supervisor, install
from .lifecycle import State
from .options import Options
from .remembered import Remembered
from .task import SupervisedTask

__all__ = [
    "BodyError",
    "Busy",
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
    "JobParked",
    "NotAllowed",
    "NotMigrated",
    "NotSerialisable",
    "Options",
    "QuestionChanged",
    "QuestionClosed",
    "QuestionNotFound",
    "QuotaExceeded",
    "Remembered",
    "State",
    "StepTimedOut",
    "SuperviseError",
    "SupervisedTask",
    "Supervisor",
    "TooLarge",
    "install",
]
