"""What guests and proxies talk to on a test network.

usage: services.py ADDRESS REPOSITORY|-
  :8080  the package repository that guests know as http://packages.test:8080/ (none with -)
  :8204  /echo answers 200 with the address the request came from, all else 204, to any method
Writes its process id to file descriptor 3 once it listens.
"""
import functools
import http.server
import os
import socketserver
import sys
import threading


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """http.server's own looks its address up in DNS when it binds, which can take many seconds."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 512


class Target(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.split("?")[0] == "/echo":
            body = self.client_address[0].encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
        else:
            self.send_response(204)
            self.end_headers()

    def address_string(self):
        return self.client_address[0]

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = answer


class Repository(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return self.client_address[0]


address, repository = sys.argv[1:3]
servers = [Server((address, 8204), Target)]
if repository != "-":
    servers.append(Server((address, 8080), functools.partial(Repository, directory=repository)))
threads = [threading.Thread(target=server.serve_forever) for server in servers]
for thread in threads:
    thread.start()
os.write(3, f"{os.getpid()}\n".encode())
os.close(3)
