"""The load on the file system: whole files through libcephfs. Arguments: conf, login, client, file system.

Each write is an open, a write, an fsync and a close; each read opens anew. So the metadata server takes
part in every operation.
"""

import os
import sys

import cephfs
import common

conf, login, client, filesystem = sys.argv[1:5]
fs = cephfs.LibCephFS(conffile=conf, auth_id=login.split(".", 1)[1])
fs.mount(filesystem_name=filesystem.encode())
FOLDER = b"/load"
try:
    fs.mkdir(FOLDER, 0o755)
except cephfs.ObjectExists:
    pass


def path(name):
    return FOLDER + b"/" + name.encode()


def put(name, data):
    fd = fs.open(path(name), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
    try:
        fs.write(fd, data, 0)
        fs.fsync(fd, 0)
    finally:
        fs.close(fd)


def get(name):
    fd = fs.open(path(name), os.O_RDONLY)
    try:
        return fs.read(fd, 0, 1 << 20)
    finally:
        fs.close(fd)


common.Client(client, put, get).run()
