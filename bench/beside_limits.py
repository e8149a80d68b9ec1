"""What a decision of the Python libraries `limits` and `token-throttle` costs a Redis server, beside GET.

    pip install limits 'token-throttle[redis]'
    redis-server --port 7777 --save '' &
    python3 beside_limits.py redis://127.0.0.1:7777 $!

Processor time of the server for each call, in microseconds; medians of rounds taken in turns. One call at a time, which is
how the libraries ask. token-throttle books and refunds, one limit.
"""

import os
import statistics
import sys

import redis
import token_throttle
from limits import RateLimitItemPerMinute, storage, strategies

ROUNDS, CALLS = 5, 20_000


def cpu_micros(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") * 1e6


def main(url, pid):
    client = redis.Redis.from_url(url)
    store = storage.storage_from_string(url)
    # So wide that all passes; and one that refuses.
    wide, narrow = RateLimitItemPerMinute(10_000_000), RateLimitItemPerMinute(1)
    work = {"GET": lambda: client.get("some")}
    for kind in ("FixedWindowRateLimiter", "SlidingWindowCounterRateLimiter", "MovingWindowRateLimiter"):
        limiter = getattr(strategies, kind)(store)
        work[f"{kind}, passes"] = lambda limiter=limiter, kind=kind: limiter.hit(wide, kind)
        work[f"{kind}, refuses"] = lambda limiter=limiter, kind=kind: limiter.hit(narrow, kind)
    quota = token_throttle.Quota(metric="requests", limit=10_000_000, per_seconds=60)
    throttle = token_throttle.SyncRateLimiter(
        token_throttle.PerModelConfig(quotas=token_throttle.UsageQuotas([quota])),
        backend=token_throttle.SyncRedisBackendBuilder(client, key_prefix="throttle"),
    )

    def book_and_refund():
        booking = throttle.acquire_capacity(model="model", usage={"requests": 2})
        throttle.refund_capacity(actual_usage={"requests": 1}, reservation=booking)

    work["token-throttle, books and refunds"] = book_and_refund
    times = {name: [] for name in work}
    for _ in range(ROUNDS):
        for name, call in work.items():
            # The log of a moving window grows with what passes: a new one each round.
            client.flushdb()
            start, calls = cpu_micros(pid), CALLS // 10 if "throttle" in name else CALLS
            for _ in range(calls):
                call()
            times[name].append((cpu_micros(pid) - start) / calls)
    for name, rounds in times.items():
        print(f"{name:44} {statistics.median(rounds):6.2f}")


main(sys.argv[1], int(sys.argv[2]))
