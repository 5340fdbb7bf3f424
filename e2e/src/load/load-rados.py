"""The load on a pool: whole objects through librados. Arguments: conf, login, client, pool."""

import sys

import common
import rados

conf, login, client, pool = sys.argv[1:5]
cluster = rados.Rados(conffile=conf, name=login)
cluster.connect(timeout=60)
ioctx = cluster.open_ioctx(pool)
common.Client(client, ioctx.write_full, lambda name: ioctx.read(name, 1 << 20)).run()
