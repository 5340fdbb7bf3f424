# Answers commands over one connection. A line of JSON in, a line of JSON out with so many bytes behind it.
# Whatever happens, no command outlives its time, and the end of the input ends the process.
import json
import os
import sys
import threading


def say(head, body=b""):
    head["bytes"] = len(body)
    out = sys.stdout.buffer
    out.write(json.dumps(head).encode() + b"\n" + body)
    out.flush()


def limited(seconds, work):
    """What work() returns, or None when it took too long. Its thread is left behind: leave the process."""
    box = []
    thread = threading.Thread(target=lambda: box.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    return box[0] if box else None


def main():
    access = json.loads(sys.argv[1])
    try:
        import rados
    except ImportError as error:
        say({"missing": str(error)})
        return
    seconds = access["timeout"]

    def connect():
        try:
            options = {"conffile": access["conf"] or ""}
            if access["name"]:
                options["name"] = access["name"]
            cluster = rados.Rados(**options)
            if access["keyring"]:
                cluster.conf_set("keyring", access["keyring"])
            cluster.conf_set("client_mount_timeout", str(seconds))
            cluster.conf_set("rados_mon_op_timeout", str(seconds))
            cluster.connect()
            return cluster, ""
        except Exception as error:
            return None, str(error)

    cluster, error = limited(seconds, connect) or (None, "no connection in %s s" % seconds)
    if cluster is None:
        say({"unreachable": error})
        os._exit(1)
    say({"ready": True})
    for line in sys.stdin:
        question = json.loads(line)
        whom, command = question["whom"], json.dumps(question["command"])

        def ask():
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

        answer = limited(seconds, ask)
        if answer is None:
            say({"timed_out": True})
            os._exit(1)
        if isinstance(answer, Exception):
            say({"unreachable": str(answer)})
            os._exit(1)
        rc, out, err = answer
        say({"rc": abs(rc), "err": err}, out or b"")
    os._exit(0)


main()
