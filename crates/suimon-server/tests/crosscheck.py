#!/usr/bin/env python3
"""An independent replay, to check `suimon replay` against.

Reads an access log in the combined format with a regular expression, sorts it
stably by time and simulates a limit for each client in whole numbers. It
shares nothing with the Rust code but the definition of the limits.

    crosscheck.py LOG POLICY      (LOG may be gzipped)

Prints one JSON object: the totals, the refusals of each client, and the smallest
whole number of each kind that would have refused nothing, something to at most
1 % of the clients, or at most 1 % of the requests, found by trying every number
from the least one up.
"""

import calendar
import collections
import gzip
import json
import re
import sys

LINE = re.compile(
    rb'(\S+) \S+ (?:.*?) \[(\d\d)/(\w{3})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)\]'
    rb' "(?:[^"\\]|\\.)*" (?:\d+|-) (?:\d+|-) "(?:[^"\\]|\\.)*" "(?:[^"\\]|\\.)*"\Z'
)
MONTHS = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
SECONDS = {"s": 1, "min": 60, "h": 3600, "day": 86400, "week": 604800}


def read(path):
    """The events as (time in seconds, client), sorted, and the unreadable lines."""
    opener = gzip.open if open(path, "rb").read(2) == b"\x1f\x8b" else open
    events, unreadable = [], 0
    with opener(path, "rb") as log:
        for line in log:
            match = LINE.match(line.rstrip(b"\n"))
            if not match:
                unreadable += 1
                continue
            client, day, month, year, hour, minute, second, sign, zone_h, zone_m = match.groups()
            date = (int(year), MONTHS.index(month) + 1, int(day), int(hour), int(minute), int(second))
            offset = (int(zone_h) * 60 + int(zone_m)) * 60
            events.append((calendar.timegm(date) - (offset if sign == b"+" else -offset), client.decode()))
    events.sort(key=lambda event: event[0])
    return events, unreadable


def parse(policy):
    kind, amount, unit, rest = re.fullmatch(r"(\w+) (\d+)/(\d*\w+?)((?: \w+ \d+)*)", policy).groups()
    count, unit = re.fullmatch(r"(\d*)(\w+)", unit).groups()
    words = dict(zip(rest.split()[::2], map(int, rest.split()[1::2])))
    limit = {"kind": kind, "tokens": int(amount), "period": int(count or 1) * SECONDS[unit]}
    if kind == "bucket":
        limit["burst"] = words.get("burst", limit["tokens"])
    if kind == "pace":
        limit["savings"] = words.get("savings", 0)
    return limit


class Gcra:
    """`balance` at `at`, refilled at the rate up to `most`; all in parts of
    1/period of a token, so that every number is whole."""

    def __init__(self, limit):
        self.tokens, self.period = limit["tokens"], limit["period"]
        self.is_bucket = limit["kind"] == "bucket"
        self.most = (limit["burst"] if self.is_bucket else limit["savings"]) * self.period
        self.balance, self.at = self.most, None

    def allow(self, now):
        if self.at is not None:
            self.balance = min(self.most, self.balance + (now - self.at) * self.tokens)
        self.at = now
        # A bucket is paid before, a pace after: it must only not be in debt.
        if self.balance < (self.period if self.is_bucket else 0):
            return False
        self.balance -= self.period
        return True


class Window:
    """At most `tokens` in any half-open stretch of one period."""

    def __init__(self, limit):
        self.tokens, self.period = limit["tokens"], limit["period"]
        self.passed = collections.deque()

    def allow(self, now):
        while self.passed and self.passed[0] <= now - self.period:
            self.passed.popleft()
        if len(self.passed) >= self.tokens:
            return False
        self.passed.append(now)
        return True


class Fixed:
    """At most `tokens` in each period since the epoch."""

    def __init__(self, limit):
        self.tokens, self.period = limit["tokens"], limit["period"]
        self.window, self.count = None, 0

    def allow(self, now):
        if now // self.period != self.window:
            self.window, self.count = now // self.period, 0
        if self.count >= self.tokens:
            return False
        self.count += 1
        return True


KINDS = {"bucket": Gcra, "pace": Gcra, "window": Window, "fixed": Fixed}
AXES = {
    "bucket": {"burst": "burst", "rate": "tokens"},
    "pace": {"savings": "savings", "rate": "tokens"},
    "window": {"limit": "tokens"},
    "fixed": {"limit": "tokens"},
}


def refusals(limit, by_client):
    counts = {}
    for client, times in by_client.items():
        state = KINDS[limit["kind"]](limit)
        count = sum(not state.allow(now) for now in times)
        if count:
            counts[client] = count
    return counts


def smallest(limit, by_client, total):
    """By trying every number; only clients refused by the last one are tried again."""
    found = {}
    for axis, field in AXES[limit["kind"]].items():
        bounds = {
            "nobody": lambda refused: not refused,
            "percent_of_keys": lambda refused: len(refused) <= len(by_client) // 100,
            "percent_of_requests": lambda refused: sum(refused.values()) <= total // 100,
        }
        found[axis] = dict.fromkeys(bounds)
        # Even the largest may not do: no rate helps against one instant.
        largest = refusals({**limit, field: 10**12}, by_client)
        reachable = [bound for bound, holds in bounds.items() if holds(largest)]
        value, left = (0 if axis == "savings" else 1), by_client
        while any(found[axis][bound] is None for bound in reachable):
            refused = refusals({**limit, field: value}, left)
            for bound in reachable:
                if found[axis][bound] is None and bounds[bound](refused):
                    found[axis][bound] = value
            left = {client: left[client] for client in refused}
            value += 1
    return found


def main(path, policy):
    events, unreadable = read(path)
    by_client = collections.defaultdict(list)
    for time, client in events:
        by_client[client].append(time)
    limit = parse(policy)
    denied = refusals(limit, by_client)
    print(json.dumps({
        "requests": len(events),
        "allowed": len(events) - sum(denied.values()),
        "denied": sum(denied.values()),
        "keys": len(by_client),
        "unreadable": unreadable,
        "denied_by_key": denied,
        "smallest": smallest(limit, by_client, len(events)),
    }))


if __name__ == "__main__":
    main(*sys.argv[1:])
