"""What every client of the load does: write, read back, compare; and tell.

Lines on stdout, each a JSON object: {"event": "ready"} after the first good operation, {"event":
"failure", ...} for each failure as it happens, and at the end {"event": "end", ...} with the figures,
after everything that was written has been read back once more. It ends when stdin closes.

An operation fails if it errs, if what is read is not what was written, or if it takes over LIMIT seconds.
"""

import hashlib
import json
import os
import select
import sys
import threading
import time

LIMIT = 30.0
PERIOD = 0.1  # a write and a read each: 20 operations a second
NAMES = 50
# An operation that never returns must not keep the figures back for ever.
GIVE_UP = 120.0

begun = time.time()
out = threading.Lock()


def tell(**what):
    with out:
        print(json.dumps(what), flush=True)


def content(name, turn):
    """8 kB that belong to this name and turn only."""
    seed = hashlib.sha256(f"{name} {turn}".encode()).digest()
    return seed * 256


class Client:
    """`put(name, data)` and `get(name)` are the operations; either may raise."""

    def __init__(self, client, put, get):
        self.client = client
        self.put = put
        self.get = get
        self.ops = 0
        self.failures = 0
        self.worst = 0.0
        self.worst_at = 0.0
        self.known = {}  # name -> the turns whose content it may have
        self.current = None

    def timed(self, what, name, work):
        at = time.time()
        self.current = (what, name, at)
        try:
            work()
            error = None
        except Exception as why:  # whatever it is, it is a failure of the operation
            error = repr(why)
        self.current = None
        took = time.time() - at
        self.ops += 1
        if took > self.worst:
            self.worst, self.worst_at = took, at
        if error is None and took > LIMIT:
            error = f"took {took:.1f} s, over {LIMIT:.0f} s"
        if error is not None:
            self.failed(what, name, at, took, error)
        return error is None

    def failed(self, what, name, at, took, error):
        self.failures += 1
        tell(event="failure", client=self.client, op=what, object=name, at=at, took=round(took, 3), error=error)

    def write(self, name, turn):
        # A write that failed may have come through or not: both contents are then right.
        self.known.setdefault(name, []).append(turn)
        if self.timed("write", name, lambda: self.put(name, content(name, turn))):
            self.known[name] = [turn]

    def read(self, name):
        def work():
            data = self.get(name)
            if not any(data == content(name, turn) for turn in self.known[name]):
                raise ValueError(f"wrong data: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")

        return self.timed("read", name, work)

    def watch(self):
        """Tells of an operation that hangs, and in the end gives up on it."""
        told = None
        while True:
            time.sleep(1)
            current = self.current
            if current is None:
                continue
            what, name, at = current
            if time.time() - at > LIMIT and told != at:
                told = at
                tell(event="hang", client=self.client, op=what, object=name, at=at)
            if time.time() - at > GIVE_UP:
                self.failed(what, name, at, time.time() - at, f"gave up after {GIVE_UP:.0f} s")
                self.end(verified=0, wrong=len(self.known))
                os._exit(1)

    def run(self):
        threading.Thread(target=self.watch, daemon=True).start()
        turn = 0
        ready = False
        while not select.select([sys.stdin], [], [], 0)[0]:
            next_at = time.time() + PERIOD
            name = f"{self.client}-{turn % NAMES}"
            self.write(name, turn)
            good = self.read(f"{self.client}-{(turn * 7) % min(NAMES, turn + 1)}")
            if good and not ready:
                ready = True
                tell(event="ready", client=self.client)
            turn += 1
            time.sleep(max(0.0, next_at - time.time()))
        good = sum([self.read(name) for name in list(self.known)])
        self.end(verified=good, wrong=len(self.known) - good)

    def end(self, verified, wrong):
        tell(
            event="end",
            client=self.client,
            seconds=round(time.time() - begun, 1),
            ops=self.ops,
            failures=self.failures,
            worst=round(self.worst, 3),
            worst_at=self.worst_at,
            verified=verified,
            wrong=wrong,
        )
