"""What Python workers say of themselves looks as the log of the program that they work for: its environment says how.

Their standard error is the program's, or an executor's, so that a line in another form could not be read there.
"""

import logging
from collections.abc import Mapping

from broker.app.logs import FORMATS, JsonLines

__all__ = ["set_up_log", "worker_environment"]

_FORM = "LOGSHIP_WORKER_LOG_FORMAT"
_LEVEL = "LOGSHIP_WORKER_LOG_LEVEL"


def worker_environment() -> dict[str, str]:
    """Return what a worker's environment needs for a log such as this process has now, warnings and worse only."""
    root = logging.getLogger()
    is_json = any(isinstance(handler.formatter, JsonLines) for handler in root.handlers)
    level = max(root.level, logging.WARNING)  # what goes well, a dozen workers would say as often
    return {_FORM: "json" if is_json else "text", _LEVEL: logging.getLevelName(level)}


def set_up_log(environment: Mapping[str, str]) -> None:
    """Log to standard error from now on as `worker_environment` says, or as text where it says nothing."""
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATS[environment.get(_FORM, "text")]())
    logging.basicConfig(level=environment.get(_LEVEL, "WARNING"), handlers=[handler])
    # what it reports reaches us as errors and is said once there
    logging.getLogger("nats").setLevel(logging.CRITICAL)
