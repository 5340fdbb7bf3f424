"""Keystone with TLS, as one process. Arguments: certificate, key."""

import sys

certificate, key = sys.argv[1:]
# Keystone reads the command line too.
del sys.argv[1:]

from cheroot.ssl.builtin import BuiltinSSLAdapter
from cheroot.wsgi import Server
from keystone.wsgi.api import application

server = Server(("127.0.0.1", 5000), application)
server.ssl_adapter = BuiltinSSLAdapter(certificate, key)
server.start()
