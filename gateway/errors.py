"""The error tree: two levels, split by whose fault it is.

Knows: the stable codes and HTTP statuses of the contract.
Must not know: Redis, HTTP responses, or how an error is shown.

Every ``detail`` is safe to show to a client: no key, no address, no stack.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple


class GatewayError(Exception):
    """Anything the gateway answers with a problem document (RFC 9457)."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    title: ClassVar[str] = "Internal error"
    default_detail: ClassVar[str] = "The gateway met an error of its own."

    def __init__(self, detail: str = "") -> None:
        self.detail = detail or self.default_detail
        super().__init__(self.detail)


class RequestError(GatewayError):
    """The caller's fault: 4xx, and no Redis call was made unless the answer needed one."""

    status = 400


class InvalidParameter(RequestError):
    code = "invalid_parameter"
    title = "Invalid parameter"
    default_detail = "A query parameter is not of the form this route takes."


class InvalidMember(RequestError):
    code = "invalid_member"
    title = "Invalid member"
    default_detail = "A member id is 1 to 256 bytes of UTF-8 without control characters."


class InvalidLeaderboard(RequestError):
    code = "invalid_leaderboard"
    title = "Invalid leaderboard"
    default_detail = "A leaderboard name is 1 to 128 bytes of UTF-8 without control characters."


class InvalidPeriod(RequestError):
    code = "invalid_period"
    title = "Invalid period"
    default_detail = "This is not a period of this leaderboard."


class LeaderboardNotFound(RequestError):
    status = 404
    code = "leaderboard_not_found"
    title = "Leaderboard not found"
    default_detail = "No configured leaderboard has this name."


class MemberNotFound(RequestError):
    status = 404
    code = "member_not_found"
    title = "Member not found"
    default_detail = "The member is not on this leaderboard."

    def __init__(self, detail: str = "", *, as_of: float | None = None, stale_age_s: float | None = None) -> None:
        super().__init__(detail)
        self.as_of = as_of
        """When the leaderboard was read without finding the member, in wall seconds."""
        self.stale_age_s = stale_age_s
        """Seconds since then, where no node known to be in step could be asked: an absence to be marked stale."""


class PeriodNotFound(RequestError):
    status = 404
    code = "period_not_found"
    title = "Period not found"
    default_detail = "Nothing is kept of this period."


class NotFound(RequestError):
    status = 404
    code = "not_found"
    title = "Not found"
    default_detail = "There is nothing at this path; / lists what there is."


class MethodNotAllowed(RequestError):
    status = 405
    code = "method_not_allowed"
    title = "Method not allowed"
    default_detail = "The gateway only reads: GET, HEAD and OPTIONS."


class UriTooLong(RequestError):
    status = 414
    code = "uri_too_long"
    title = "URI too long"
    default_detail = "A request target is at most 16 KiB."


class OriginError(GatewayError):
    """The data could not be read now: 5xx, unless something servable is known."""

    status = 503
    retry_after_s: int | None = 1


class OriginUnavailable(OriginError):
    """No node answered, and nothing servable is known."""

    code = "origin_unavailable"
    title = "Origin unavailable"
    default_detail = "The leaderboard's data cannot be read at the moment."


class OriginTimeout(OriginError):
    """The request budget ran out on an uncached read."""

    status = 504
    code = "origin_timeout"
    title = "Origin timed out"
    default_detail = "The leaderboard's data was not read in time."


class WrongType(OriginError):
    """The key holds something else than a sorted set; asking again would not help, nor is it an outage."""

    status = 500
    code = "wrong_type"
    title = "Wrong type"
    default_detail = "What is stored for this leaderboard is not a leaderboard."
    retry_after_s = None


class Overloaded(OriginError):
    """A bounded queue is full: answered at once rather than late."""

    code = "overloaded"
    title = "Overloaded"
    default_detail = "Too many reads are waiting; try again shortly."


class Problem(NamedTuple):
    """One thing wrong with the settings: the key's path (``leaderboards[0].ttl_ms``) and what would be right."""

    path: str
    message: str


class SettingsError(GatewayError):
    """The configuration cannot be used; holds every problem found, not only the first."""

    code = "settings_error"
    title = "Bad settings"

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(f"{problem.path}: {problem.message}" for problem in problems))
