"""The error codes (`err_code`) of nats-server that our programs distinguish."""

from enum import IntEnum


class ErrorCode(IntEnum):
    """Codes by the names in nats-server's `server/errors.json`, without `JS` and `Err`."""

    ACCOUNT_RESOURCES_EXCEEDED = 10002
    CLUSTER_NOT_AVAIL = 10008
    CONSUMER_CREATE = 10012
    CONSUMER_NAME_EXIST = 10013
    CONSUMER_NOT_FOUND = 10014
    INSUFFICIENT_RESOURCES = 10023
    MEMORY_RESOURCES_EXCEEDED = 10028
    NO_MESSAGE_FOUND = 10037
    STORAGE_RESOURCES_EXCEEDED = 10047
    STREAM_INVALID_CONFIG = 10052
    STREAM_MESSAGE_EXCEEDS_MAXIMUM = 10054
    STREAM_NOT_FOUND = 10059
    STREAM_WRONG_LAST_SEQUENCE = 10071
    STREAM_REPLICAS_NOT_SUPPORTED = 10074
    STREAM_STORE_FAILED = 10077  # also: the stream has no space left by its own limits
    CONSUMER_EXISTING_ACTIVE = 10105
    CONSUMER_ALREADY_EXISTS = 10148
    STREAM_WRONG_LAST_SEQUENCE_CONSTANT = 10164  # another write of the subject is under way
    STREAM_TOO_MANY_REQUESTS = 10167
