"""The load on the gateways: whole objects through S3. Arguments: client, access key, secret, address...

With several gateways it does what a balancer in front of them does: where a connection is refused, or
ends before any answer, the request goes to the next one, again and again within the operation's time.
A put of a whole object and a get may be repeated without harm. An answer, whatever it says, is final.
"""

import base64
import hashlib
import hmac
import http.client
import sys
import time
from email.utils import formatdate

import common

client, access, secret = sys.argv[1:4]
gateways = sys.argv[4:]
BUCKET = "load"
first = 0


def once(gateway, method, path, body):
    date = formatdate(usegmt=True)
    kind = "application/octet-stream" if body else ""
    signed = f"{method}\n\n{kind}\n{date}\n{path}".encode()
    signature = base64.b64encode(hmac.new(secret.encode(), signed, hashlib.sha1).digest()).decode()
    headers = {"Date": date, "Authorization": f"AWS {access}:{signature}"}
    if body:
        headers["Content-Type"] = kind
    connection = http.client.HTTPConnection(gateway, timeout=common.LIMIT)
    try:
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def request(method, path, body=None):
    global first
    begun = time.time()
    turn = first
    while True:
        gateway = gateways[turn % len(gateways)]
        try:
            status, data = once(gateway, method, path, body)
            break
        except (ConnectionError, http.client.HTTPException):
            if time.time() - begun > common.LIMIT:
                raise
            turn += 1
            if (turn - first) % len(gateways) == 0:
                time.sleep(0.1)
    first += 1  # the next request begins with the next gateway
    if status not in (200, 204):
        raise IOError(f"{method} {path} at {gateway}: status {status}: {data[:200]!r}")
    return data


request("PUT", f"/{BUCKET}")
common.Client(
    client,
    lambda name, data: request("PUT", f"/{BUCKET}/{name}", data),
    lambda name: request("GET", f"/{BUCKET}/{name}"),
).run()
