"""A small server that speaks WebHDFS on loopback: files in memory, with the name node and its data node in one.

It accepts the requests of fsspec's client, admits only one user, and fails where a test demands it.
"""

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit

USER = "tester"
PREFIX = "/webhdfs/v1"
TIME = 1767323045000
ACCESS = "AccessControlException"
CUT = -1
"""As a result of `trouble`: the connection ends in the middle of the data."""


def untroubled(operation: str, path: str) -> int | None:
    """Let everything through."""
    return None


@dataclass
class Hdfs:
    """A running server with its contents."""

    port: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    """Modification times in milliseconds, of files that have another time than `TIME`."""
    requests: Counter[str] = field(default_factory=Counter)
    trouble: Callable[[str, str], int | None] = untroubled
    """Called before each operation; returns the HTTP status to fail with, `CUT`, or None."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def uri(self, path: str) -> str:
        return f"webhdfs://{USER}@127.0.0.1:{self.port}{path}"

    def status(self, path: str) -> dict[str, object] | None:
        """Return the name node's status of a file or folder; a folder exists if files are in it."""
        if path in self.files:
            size = len(self.files[path])
            return {"pathSuffix": "", "type": "FILE", "length": size, "modificationTime": self.times.get(path, TIME)}
        if path == "/" or any(name.startswith(f"{path}/") for name in self.files):
            return {"pathSuffix": "", "type": "DIRECTORY", "length": 0, "modificationTime": TIME}
        return None


@contextlib.contextmanager
def running() -> Iterator[Hdfs]:
    """Serve an empty file system for the block."""
    hdfs = Hdfs()
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hdfs": hdfs})) as server:
        server.daemon_threads = True
        hdfs.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="webhdfs")
        thread.start()
        try:
            yield hdfs
        finally:
            server.shutdown()
            thread.join()


class Handler(BaseHTTPRequestHandler):
    """Handles one connection."""

    hdfs: Hdfs
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_one_request(self) -> None:
        self.close_connection = True  # unless a request arrives: a killed client sends none
        with contextlib.suppress(ConnectionError):
            super().handle_one_request()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = dict(parse_qsl(parts.query))
        path = unquote(parts.path).removeprefix(PREFIX).rstrip("/") or "/"
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        operation = asked["op"] + (".DATA" if "datanode" in asked else "")
        with self.hdfs.lock:
            self.hdfs.requests[operation] += 1
            trouble = self.hdfs.trouble(operation, path)
            if trouble == CUT:
                self.close_connection = True
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b"half")
            elif trouble:
                self.refuse(trouble, "IOException", "as the test wants it")
            elif asked.get("user.name") != USER:
                self.refuse(403, ACCESS, f"Permission denied: user={asked.get('user.name')}")
            else:
                getattr(self, asked["op"].lower())(path, asked, body)

    do_PUT = do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def answer(self, status: int = 200, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def tell(self, found: object) -> None:
        self.answer(200, json.dumps(found).encode())

    def refuse(self, status: int, exception: str, message: str) -> None:
        self.answer(status, json.dumps({"RemoteException": {"exception": exception, "message": message}}).encode())

    def redirected(self, asked: dict[str, str]) -> bool:
        """Redirect the client to the data node, unless the request is already for the data node."""
        if "datanode" in asked:
            return False
        self.answer(307, Location=f"http://127.0.0.1:{self.hdfs.port}{self.path}&datanode=1")
        return True

    def create(self, path: str, asked: dict[str, str], body: bytes) -> None:
        if not self.redirected(asked):
            self.hdfs.files[path] = body
            # The relay removes old temporary files, so a file that a live writer has must not look old.
            self.hdfs.times[path] = time.time_ns() // 1_000_000
            self.answer(201)

    def append(self, path: str, asked: dict[str, str], body: bytes) -> None:
        if not self.redirected(asked):
            self.hdfs.files[path] += body
            self.answer()

    def open(self, path: str, asked: dict[str, str], body: bytes) -> None:
        if path not in self.hdfs.files:
            self.refuse(404, "FileNotFoundException", f"File {path} not found.")
        elif not self.redirected(asked):
            start = int(asked["offset"])
            self.answer(200, self.hdfs.files[path][start : start + int(asked["length"])])

    def getfilestatus(self, path: str, asked: dict[str, str], body: bytes) -> None:
        if status := self.hdfs.status(path):
            self.tell({"FileStatus": status})
        else:
            self.refuse(404, "FileNotFoundException", f"File does not exist: {path}")

    def liststatus(self, path: str, asked: dict[str, str], body: bytes) -> None:
        inside = f"{path.rstrip('/')}/"
        names = sorted({name[len(inside) :].partition("/")[0] for name in self.hdfs.files if name.startswith(inside)})
        found = [{**(self.hdfs.status(inside + name) or {}), "pathSuffix": name} for name in names]
        self.tell({"FileStatuses": {"FileStatus": found}})

    def rename(self, path: str, asked: dict[str, str], body: bytes) -> None:
        """Rename as HDFS does: without OVERWRITE it has no effect if the name exists."""
        if path not in self.hdfs.files:
            self.refuse(404, "FileNotFoundException", f"rename source {path} is not found.")
        elif asked.get("renameoptions") == "OVERWRITE" or asked["destination"] not in self.hdfs.files:
            self.hdfs.files[asked["destination"]] = self.hdfs.files.pop(path)
            self.answer()
        else:
            self.tell({"boolean": False})

    def delete(self, path: str, asked: dict[str, str], body: bytes) -> None:
        gone = [name for name in self.hdfs.files if name == path or name.startswith(f"{path}/")]
        for name in gone:
            del self.hdfs.files[name]
        self.tell({"boolean": bool(gone)})
