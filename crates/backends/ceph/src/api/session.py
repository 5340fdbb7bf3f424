# Answers commands over one connection, as many at once as come. A line of JSON with an id in, a line of JSON
# with that id out and so many bytes behind it, in the order in which answers come.
# Whatever happens, no command outlives its time, and the end of the input ends the process.
import json
import os
import sys
import threading

# A connection on which one command had no answer takes no more of them, and the others have so many seconds left.
OTHERS_HAVE = 3


class Answers:
    def __init__(self):
        self.lock = threading.Lock()
        self.open = 0
        self.given_up = False

    def say(self, head, body=b""):
        head["bytes"] = len(body)
        with self.lock:
            out = sys.stdout.buffer
            out.write(json.dumps(head).encode() + b"\n")
            # Not behind one another in one piece: a dump of all groups would be in memory twice.
            out.write(body)
            out.flush()

    def begins(self):
        with self.lock:
            self.open += not self.given_up
            return not self.given_up

    def ended(self):
        with self.lock:
            self.open -= 1
            if self.given_up and self.open == 0:
                os._exit(1)

    def give_up(self):
        with self.lock:
            if not self.given_up:
                self.given_up = True
                last = threading.Timer(OTHERS_HAVE, os._exit, [1])
                last.daemon = True
                last.start()


def limited(seconds, work):
    """What work() returns, or None when it took too long. Its thread is left behind: leave the process soon."""
    box = []
    thread = threading.Thread(target=lambda: box.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    return box[0] if box else None


def connect(rados, access):
    try:
        options = {"conffile": access["conf"] or ""}
        if access["name"]:
            options["name"] = access["name"]
        cluster = rados.Rados(**options)
        if access["keyring"]:
            cluster.conf_set("keyring", access["keyring"])
        cluster.conf_set("client_mount_timeout", str(access["timeout"]))
        cluster.conf_set("rados_mon_op_timeout", str(access["timeout"]))
        cluster.connect()
        return cluster, ""
    except Exception as error:
        return None, str(error)


def ask(cluster, whom, command):
    try:
        if whom == "mon":
            return cluster.mon_command(command, b"")
        if whom == "mgr":
            return cluster.mgr_command(command, b"")
        kind, which = whom
        if kind == "mon":
            return cluster.mon_command(command, b"", target=str(which))
        return cluster.osd_command(which, command, b"")
    except Exception as error:
        return error


def answer(cluster, seconds, question, answers):
    which, whom, command = question["id"], question["whom"], json.dumps(question["command"])
    came = limited(seconds, lambda: ask(cluster, whom, command))
    if came is None or isinstance(came, Exception):
        answers.give_up()
        why = {"timed_out": True} if came is None else {"unreachable": str(came)}
        answers.say(dict(why, id=which))
    else:
        rc, out, err = came
        answers.say({"id": which, "rc": abs(rc), "err": err}, out or b"")
    answers.ended()


def main():
    access = json.loads(sys.argv[1])
    answers = Answers()
    try:
        import rados
    except ImportError as error:
        answers.say({"missing": str(error)})
        return
    seconds = access["timeout"]
    no_time = None, "no connection in %s s" % seconds
    cluster, error = limited(seconds, lambda: connect(rados, access)) or no_time
    if cluster is None:
        answers.say({"unreachable": error})
        os._exit(1)
    answers.say({"ready": True})
    # How long a thread that has an answer waits for another that computes; by default 5 ms.
    sys.setswitchinterval(0.0005)
    for line in sys.stdin:
        question = json.loads(line)
        if answers.begins():
            work = cluster, seconds, question, answers
            threading.Thread(target=answer, args=work, daemon=True).start()
        else:
            answers.say({"id": question["id"], "unreachable": "another command had no answer on this connection"})
    os._exit(0)


main()
