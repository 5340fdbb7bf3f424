"""One connection to a cluster for many commands: a JSON line in, a JSON line out.

{"target": "mon"|"mgr", "cmd": {...}, "in": "..."}  ->  {"rc": 0, "out": "...", "err": "..."}
A list of such requests is sent all at once and answered by a list, in the same order.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import rados

TIMEOUT = 60


def one(cluster, request):
    send = {"mon": cluster.mon_command, "mgr": cluster.mgr_command}[request["target"]]
    data = request.get("in", "").encode()
    try:
        rc, out, err = send(json.dumps(request["cmd"]), data, timeout=request.get("timeout", TIMEOUT))
    except rados.Error as error:
        return {"rc": -(abs(error.errno or 5)), "out": "", "err": repr(error)}
    return {"rc": rc, "out": out.decode("utf-8", "replace"), "err": err}


def main():
    conf, name = sys.argv[1:3]
    cluster = rados.Rados(conffile=conf, name=name)
    cluster.connect(timeout=TIMEOUT)
    print(json.dumps({"connected": cluster.get_fsid()}), flush=True)
    with ThreadPoolExecutor(max_workers=32) as pool:
        for line in sys.stdin:
            request = json.loads(line)
            if isinstance(request, list):
                answer = list(pool.map(lambda each: one(cluster, each), request))
            else:
                answer = one(cluster, request)
            print(json.dumps(answer), flush=True)


main()
