"""The load on an Ironic: clients that list, patch, switch power, provision and make ports, and notice everything.

Arguments: the address of the API, HOST:PORT, and the conductor groups that nodes are spread over, if there are any. Each kind of client is a thread with nodes of its own, so that none waits
for another's lock. Lines on stdout, each a JSON object: {"event": "ready"} when each client has succeeded once,
{"event": "failure", ...} for each request that failed, and {"event": "end", ...} for each client, after everything
that was acknowledged has been read back. It ends when stdin closes.

A request fails if it errs, is answered with another status than success, takes over LIMIT seconds, or what it was
acknowledged for is not so. A node that is locked (409) is asked again, as Ironic's own client does; a 503 is not. After
a write that failed it is looked whether it had been applied all the same.
"""

import http.client
import json
import os
import select
import sys
import threading
import time
import urllib.parse

LIMIT = 60.0
BUSY_TRIES = 6  # five more, as Ironic's own client has it
# What was accepted with a 202 is done by then; what was begun by a request that failed, by then or never.
DONE = 60.0
BEGUN = 20.0
# By then it is known whether a write that failed was applied, or it stays unknown.
SETTLED = 30.0
MICROVERSION = "1.80"
GOOD = (200, 201, 202, 204)
# Of a write; true, as what is found applied is.
ACCEPTED = "accepted"

host, port = sys.argv[1].rsplit(":", 1)
groups = sys.argv[2:] or [""]
begun = time.time()
out = threading.Lock()
stopping = threading.Event()


def tell(**what):
    with out:
        print(json.dumps(what), flush=True)


class Answer:
    def __init__(self, status, body, request_id, error):
        self.status = status
        self.body = body
        self.request_id = request_id
        self.error = error
        self.good = error is None and status in GOOD

    def document(self):
        return json.loads(self.body) if self.body else None


def once(method, path, document):
    """One request, on a connection of its own."""
    headers = {"X-OpenStack-Ironic-API-Version": MICROVERSION, "Accept": "application/json"}
    if "TOKEN" in os.environ:
        headers["X-Auth-Token"] = os.environ["TOKEN"]
    body = None
    if document is not None:
        headers["Content-Type"] = "application/json"
        body = json.dumps(document)
    connection = http.client.HTTPConnection(host, int(port), timeout=LIMIT)
    try:
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        return Answer(answer.status, text, answer.getheader("Openstack-Request-Id"), None)
    except (OSError, http.client.HTTPException) as why:
        return Answer(None, "", None, repr(why))
    finally:
        connection.close()


class Client(threading.Thread):
    """One kind of client. `turn(number)` is one round of its work; `verify()` gives how much is right at the end."""

    def __init__(self, name, period):
        super().__init__(name=name)
        self.period = period
        self.times = []
        self.busy = 0
        self.failures = 0
        self.worst = 0.0
        self.worst_at = 0.0
        self.succeeded = threading.Event()

    def run(self):
        try:
            number = 0
            while not stopping.is_set():
                self.turn(number)
                number += 1
                stopping.wait(self.period)
            right, wrong = self.verify()
        except Exception as why:  # its figures would say that all is well
            self.failures += 1
            tell(event="failure", client=self.name, method="", path="", at=time.time(), took=0.0, error=repr(why))
            right, wrong = 0, 1
        self.succeeded.set()
        self.end(right, wrong)

    def end(self, right, wrong):
        times = sorted(self.times) or [0.0]
        tell(
            event="end",
            client=self.name,
            seconds=round(time.time() - begun, 1),
            requests=len(self.times),
            failures=self.failures,
            busy=self.busy,
            median=round(times[len(times) // 2], 3),
            p99=round(times[len(times) * 99 // 100], 3),
            worst=round(self.worst, 3),
            worst_at=self.worst_at,
            verified=right,
            wrong=wrong,
        )

    def failed(self, method, path, answer, at, took, error=None, applied=None):
        self.failures += 1
        tell(
            event="failure",
            client=self.name,
            method=method,
            path=path,
            status=answer.status,
            body=answer.body[:2000],
            request_id=answer.request_id,
            at=at,
            took=round(took, 3),
            error=error or answer.error,
            applied=applied,
        )

    def ask(self, method, path, document=None):
        """A request, and again while the node is locked. Gives the answer, when it began and what it took."""
        for left in reversed(range(BUSY_TRIES)):
            at = time.time()
            answer = once(method, path, document)
            took = time.time() - at
            self.times.append(took)
            if took > self.worst:
                self.worst, self.worst_at = took, at
            if answer.status != 409 or left == 0:
                break
            self.busy += 1
            time.sleep(1)
        if answer.good:
            self.succeeded.set()
        return answer, at, took

    def read(self, path):
        """What stands there, or None after a failure."""
        answer, at, took = self.ask("GET", path)
        if not answer.good:
            self.failed("GET", path, answer, at, took)
            return None
        return answer.document()

    def write(self, method, path, document, applied):
        """ACCEPTED, or what `applied()` finds after a failure: whether it is so, None where that is unknown."""
        answer, at, took = self.ask(method, path, document)
        if answer.good:
            return ACCEPTED
        found = None
        while found is None and time.time() - at < SETTLED:
            found = applied()
            if found is None:
                time.sleep(0.5)
        self.failed(method, path, answer, at, took, applied=found)
        return found

    def becomes(self, method, path, at, written, node, done, error):
        """Waits until a node is as a write that was accepted or begun wants it; `error(node)`: that cannot come."""
        found = None
        accepted = written == ACCEPTED
        while time.time() - at < (DONE if accepted else BEGUN):
            found = self.read(f"/v1/nodes/{node}") or found
            if found is not None:
                if done(found):
                    return True
                if error(found):
                    break
            time.sleep(0.2)
        nothing = Answer(None, "", None, None)
        state = {key: (found or {}).get(key) for key in ("provision_state", "power_state", "last_error")}
        how = "was accepted" if accepted else "failed, was begun"
        self.failed(method, path, nothing, at, time.time() - at, error=f"{how}, and not done: {state}")
        return False


class Lists(Client):
    """Nodes, conductors, ports. A list that lacks something is a failure too."""

    PATHS = ("/v1/nodes?fields=name,provision_state,extra", "/v1/conductors", "/v1/ports/detail?limit=5")

    def turn(self, number):
        for path, key, least in zip(self.PATHS, ("nodes", "conductors", "ports"), (NODES, 2, 5)):
            at = time.time()
            found = self.read(path)
            if found is not None and len(found[key]) < least:
                answer = Answer(200, json.dumps(found), None, None)
                error = f"{len(found[key])} {key}, and there are {least} at least"
                self.failed("GET", path, answer, at, time.time() - at, error=error)

    def verify(self):
        found = self.read(self.PATHS[0])
        return (1, 0) if found is not None and len(found["nodes"]) >= NODES else (0, 1)


class Patches(Client):
    """A number in the field `extra` of things, which grows. It may have each of `known`."""

    def __init__(self, name, period, paths):
        super().__init__(name, period)
        self.paths = paths
        self.known = {path: [None] for path in paths}

    def look(self, path):
        answer, at, took = self.ask("GET", path)
        if not answer.good:
            self.failed("GET", path, answer, at, took)
            return None
        return answer.document()["extra"]

    def turn(self, number):
        path = self.paths[number % len(self.paths)]
        patch = [{"op": "add", "path": "/extra/turn", "value": number}]

        def applied():
            extra = self.look(path)
            return None if extra is None else extra.get("turn") == number

        done = self.write("PATCH", path, patch, applied)
        if done:
            self.known[path] = [number]
        elif done is None:
            self.known[path].append(number)

    def verify(self):
        right = 0
        for path, known in self.known.items():
            extra = self.look(path)
            if extra is not None and extra.get("turn") in known:
                right += 1
            else:
                print(f"{path} has {extra}, and was told {known}", file=sys.stderr)
        return right, len(self.known) - right


class Ports(Patches):
    """The same on ports; and every fourth turn one is made and an older one deleted."""

    def __init__(self, name, period, paths, node):
        super().__init__(name, period, paths)
        self.node = node
        self.there = {}  # address -> whether it should be there; None if that is unknown
        self.ids = {}  # of those that are there

    def find(self, address):
        """The port's id, False if there is none, None if that is unknown."""
        found = self.read(f"/v1/ports?address={urllib.parse.quote(address)}")
        if found is None:
            return None
        return found["ports"][0]["uuid"] if found["ports"] else False

    def turn(self, number):
        super().turn(number)
        if number % 4 == 3:
            self.make(number)
            if len(self.ids) > 3:
                self.delete(next(iter(self.ids)))

    def make(self, number):
        address = "52:54:01:%02x:%02x:%02x" % (number >> 16 & 255, number >> 8 & 255, number & 255)

        def applied():
            port = self.find(address)
            return None if port is None else bool(port)

        made = self.write("POST", "/v1/ports", {"node_uuid": self.node, "address": address}, applied)
        self.there[address] = None if made is None else bool(made)
        port = self.find(address)
        if port:
            self.ids[address] = port

    def delete(self, address):
        port = self.ids.pop(address)

        def applied():
            found = self.find(address)
            return None if found is None else not found

        gone = self.write("DELETE", f"/v1/ports/{port}", None, applied)
        self.there[address] = None if gone is None else not gone

    def verify(self):
        right, wrong = super().verify()
        for address, there in self.there.items():
            found = self.find(address)
            if found is not None and there in (None, bool(found)):
                right += 1
            else:
                wrong += 1
                print(f"the port {address} is {found}, and should be there: {there}", file=sys.stderr)
        return right, wrong


class Power(Client):
    """Switches nodes on and off, and waits until they are."""

    def __init__(self, name, period, nodes):
        super().__init__(name, period)
        self.nodes = nodes
        self.known = {}

    def turn(self, number):
        node = self.nodes[number % len(self.nodes)]
        target = "power off" if self.known.get(node) == "power on" else "power on"
        path = f"/v1/nodes/{node}/states/power"

        def on_its_way(found):
            return target in (found["power_state"], found["target_power_state"])

        def applied():
            found = self.read(f"/v1/nodes/{node}")
            return None if found is None else on_its_way(found)

        at = time.time()
        # The one that failed may have been carried out by now, or not.
        self.known[node] = None
        written = self.write("PUT", path, {"target": target}, applied)
        if written and self.becomes(
            "PUT",
            path,
            at,
            written,
            node,
            lambda found: found["power_state"] == target and found["target_power_state"] is None,
            lambda found: False,
        ):
            self.known[node] = target

    def verify(self):
        right = 0
        known = {node: state for node, state in self.known.items() if state}
        for node, state in known.items():
            found = self.read(f"/v1/nodes/{node}")
            right += found is not None and found["power_state"] == state
        return right, len(known) - right


CYCLE = (("manage", "manageable"), ("provide", "available"), ("active", "active"), ("deleted", "available"))


class Provision(Client):
    """Takes nodes through their states: to be managed, available, in use, and available again."""

    def __init__(self, name, period, nodes):
        super().__init__(name, period)
        self.nodes = list(nodes)
        self.known = {}

    def turn(self, number):
        if not self.nodes:
            return
        node = self.nodes[number % len(self.nodes)]
        for verb, state in CYCLE:
            if stopping.is_set() and self.known.get(node) != "manageable":
                return
            if not self.step(node, verb, state):
                # It is not where the next verb could begin.
                self.nodes.remove(node)
                self.known.pop(node, None)
                return
            self.known[node] = state

    def step(self, node, verb, state):
        path = f"/v1/nodes/{node}/states/provision"

        def applied():
            found = self.read(f"/v1/nodes/{node}")
            if found is None:
                return None
            # Those that were before it are `before` as long as nothing has begun.
            return found["provision_state"] != before or found["target_provision_state"] is not None

        before = self.known.get(node, "available")
        until = time.time() + DONE
        while time.time() < until:
            at = time.time()
            written = self.write("PUT", path, {"target": verb}, applied)
            if written is None:
                return False
            if written:
                return self.becomes(
                    "PUT",
                    path,
                    at,
                    written,
                    node,
                    lambda found: found["provision_state"] == state,
                    lambda found: found["provision_state"].endswith(("failed", "error")),
                )
            time.sleep(0.5)
        return False

    def verify(self):
        right = 0
        for node, state in self.known.items():
            found = self.read(f"/v1/nodes/{node}")
            right += found is not None and found["provision_state"] == state
        return right, len(self.known) - right


NODES = 15


class Setup(Client):
    """Makes the nodes, each with a port. Nothing may fail here."""

    def must(self, method, path, document=None):
        answer, _, _ = self.ask(method, path, document)
        if not answer.good:
            raise SystemExit(f"{method} {path}: {answer.status} {answer.error} {answer.body[:500]}")
        return answer.document()

    def make(self, number):
        """The ids of node and port."""
        made = {"name": f"n{number}", "driver": "fake-hardware", "resource_class": "x"}
        node = self.must("POST", "/v1/nodes", made | {"conductor_group": groups[number % len(groups)]})
        address = "52:54:00:00:00:%02x" % number
        made = self.must("POST", "/v1/ports", {"node_uuid": node["uuid"], "address": address})
        return node["uuid"], made["uuid"]

    def provide(self, number):
        for verb, state in CYCLE[:2]:
            self.must("PUT", f"/v1/nodes/n{number}/states/provision", {"target": verb})
            until = time.time() + DONE
            while self.must("GET", f"/v1/nodes/n{number}")["provision_state"] != state:
                if time.time() > until:
                    raise SystemExit(f"n{number} did not become {state} within {DONE:.0f} s")
                time.sleep(0.1)


def main():
    setup = Setup("setup", 0)
    made = [setup.make(number) for number in range(NODES)]
    for number in range(9, NODES):
        setup.provide(number)
    clients = [
        Lists("lists", 0.15),
        Patches("nodes", 0.15, [f"/v1/nodes/n{number}" for number in range(6)]),
        Ports("ports", 0.3, [f"/v1/ports/{made[number][1]}" for number in range(6, 9)], made[6][0]),
        Power("power", 0.3, [f"n{number}" for number in range(9, 12)]),
        Provision("provision", 0.1, [f"n{number}" for number in range(12, NODES)]),
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.succeeded.wait()
    tell(event="ready")
    # Nothing is ever written there: it becomes readable when it closes.
    select.select([sys.stdin], [], [])
    stopping.set()
    for client in clients:
        client.join()


main()
