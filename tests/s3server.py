"""A small server that speaks S3 on loopback: objects in memory, multipart uploads, listings in pages.

It accepts the requests of Arrow's client, requires the right access key, counts requests, and fails where a test
demands it. It does not check signatures.
"""

import contextlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import BinaryIO
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from unshard.core.model import ObjectAccess

BUCKET, KEY, SECRET = "bucket", "key-of-tests", "secret-of-tests"
PAGE = 1000
TIME = "2026-01-02T03:04:05.000Z"
HTTP_TIME = "Fri, 02 Jan 2026 03:04:05 GMT"
CUT = 0
"""As a result of `trouble`: the connection ends without an answer."""


def untroubled(operation: str, key: str) -> int | None:
    """Let everything through."""
    return None


@dataclass
class S3:
    """A running server with its contents."""

    port: int = 0
    objects: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    """Parts of uploads that are not complete, by upload id."""
    requests: Counter[str] = field(default_factory=Counter)
    """By operation, such as `GET` (of an object) or `LIST`."""
    trouble: Callable[[str, str], int | None] = untroubled
    """Called before each operation; returns the HTTP status to fail with, `CUT`, or None."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def access(self) -> ObjectAccess:
        """Return the access to the server."""
        return ObjectAccess(KEY, SECRET, region="us-east-1", endpoint=self.endpoint)

    @property
    def connection(self) -> str:
        """Return the access as a connection of Airflow."""
        extra = {"endpoint_url": self.endpoint, "region_name": "us-east-1"}
        return json.dumps({"conn_type": "aws", "login": KEY, "password": SECRET, "extra": extra})


@contextlib.contextmanager
def running() -> Iterator[S3]:
    """Serve an empty bucket for the block."""
    s3 = S3()
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"s3": s3})) as server:
        server.daemon_threads = True
        s3.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="s3")
        thread.start()
        try:
            yield s3
        finally:
            server.shutdown()
            thread.join()


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    s3: S3
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_one_request(self) -> None:
        self.close_connection = True  # unless a request arrives: a killed client sends none
        with contextlib.suppress(ConnectionError):
            super().handle_one_request()

    def do_GET(self) -> None:
        self.answer()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass

    def answer(self) -> None:
        place = urlsplit(self.path)
        asked = dict(parse_qsl(place.query, keep_blank_values=True))
        bucket, _, key = unquote(place.path).lstrip("/").partition("/")
        body = self.body()
        operation = operation_of(self.command, key, asked)
        # A client that was killed meanwhile does not read the answer.
        with contextlib.suppress(ConnectionError), self.s3.lock:
            self.s3.requests[operation] += 1
            status = self.s3.trouble(operation, key)
            if status == CUT:
                self.close_connection = True
            elif status:
                self.refuse(status, "InternalError" if status >= 500 else "AccessDenied")
            elif f"Credential={KEY}/" not in self.headers.get("Authorization", ""):
                self.refuse(403, "AccessDenied")
            elif bucket != BUCKET:
                self.refuse(404, "NoSuchBucket")
            else:
                getattr(self, operation.lower())(key, asked, body)

    def body(self) -> bytes:
        """Return the request body, without the frames of HTTP and of the SDK around its pieces."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            sent = b"".join(pieces(self.rfile, b"\r\n"))
        else:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "aws-chunked" in self.headers.get("Content-Encoding", ""):
            return b"".join(pieces(BytesIO(sent), b""))
        return sent

    def send(self, status: int = 200, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status: int, code: str) -> None:
        self.send(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def head_bucket(self, key: str, asked: dict[str, str], body: bytes) -> None:
        self.send(x_amz_bucket_region="us-east-1")

    def head(self, key: str, asked: dict[str, str], body: bytes) -> None:
        if key not in self.s3.objects:
            return self.refuse(404, "NoSuchKey")
        size = str(len(self.s3.objects[key]))
        return self.send(Content_Length=size, ETag=etag(self.s3.objects[key]), Last_Modified=HTTP_TIME)

    def get(self, key: str, asked: dict[str, str], body: bytes) -> None:
        if key not in self.s3.objects:
            return self.refuse(404, "NoSuchKey")
        data = self.s3.objects[key]
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not wanted:
            return self.send(body=data, ETag=etag(data), Last_Modified=HTTP_TIME)
        first, last = int(wanted[1]), min(int(wanted[2]), len(data) - 1)
        if first >= len(data):
            return self.refuse(416, "InvalidRange")
        return self.send(
            206,
            data[first : last + 1],
            ETag=etag(data),
            Last_Modified=HTTP_TIME,
            Content_Range=f"bytes {first}-{last}/{len(data)}",
        )

    def put(self, key: str, asked: dict[str, str], body: bytes) -> None:
        self.s3.objects[key] = body
        self.send(ETag=etag(body))

    def begin_upload(self, key: str, asked: dict[str, str], body: bytes) -> None:
        name = f"u{self.s3.requests['BEGIN_UPLOAD']}"
        self.s3.uploads[name] = {}
        self.send(body=result("InitiateMultipartUpload", f"<Key>{escape(key)}</Key><UploadId>{name}</UploadId>"))

    def put_part(self, key: str, asked: dict[str, str], body: bytes) -> None:
        self.s3.uploads[asked["uploadId"]][int(asked["partNumber"])] = body
        self.send(ETag=etag(body))

    def complete_upload(self, key: str, asked: dict[str, str], body: bytes) -> None:
        parts = self.s3.uploads.pop(asked["uploadId"])
        numbers = [int(number) for number in re.findall(rb"<PartNumber>(\d+)</PartNumber>", body)]
        self.s3.objects[key] = b"".join(parts[number] for number in numbers)
        self.send(body=result("CompleteMultipartUpload", f"<Key>{escape(key)}</Key><ETag>x</ETag>"))

    def abort_upload(self, key: str, asked: dict[str, str], body: bytes) -> None:
        self.s3.uploads.pop(asked["uploadId"], None)
        self.send(204)

    def delete(self, key: str, asked: dict[str, str], body: bytes) -> None:
        self.s3.objects.pop(key, None)
        self.send(204)

    def delete_many(self, key: str, asked: dict[str, str], body: bytes) -> None:
        for name in re.findall(r"<Key>(.*?)</Key>", body.decode()):
            self.s3.objects.pop(unescaped(name), None)
        self.send(body=result("Delete", ""))

    def list(self, key: str, asked: dict[str, str], body: bytes) -> None:
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        after, page = asked.get("continuation-token", ""), min(int(asked.get("max-keys", PAGE)), PAGE)
        entries: dict[str, str] = {}
        for name in sorted(self.s3.objects):
            if name.startswith(prefix):
                rest, found, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
                entries.setdefault(prefix + rest + delimiter if found else name, "" if found else name)
        names = [name for name in sorted(entries) if name > after]
        listed = [self._listed(name, entries[name]) for name in names[:page]]
        more = f"<NextContinuationToken>{escape(names[page - 1])}</NextContinuationToken>" if names[page:] else ""
        flag = str(bool(more)).lower()
        self.send(
            body=result(
                "ListBucket",
                f"<IsTruncated>{flag}</IsTruncated>{more}<KeyCount>{len(listed)}</KeyCount>" + "".join(listed),
            )
        )

    def _listed(self, name: str, key: str) -> str:
        if not key:
            return f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
        return (
            f"<Contents><Key>{escape(name)}</Key><Size>{len(self.s3.objects[key])}</Size>"
            f"<LastModified>{TIME}</LastModified></Contents>"
        )


def pieces(sent: BinaryIO, end: bytes) -> Iterator[bytes]:
    """Yield the pieces of a chunked body; `end` follows the last one."""
    while size := int(sent.readline().partition(b";")[0], 16):
        yield sent.read(size)
        sent.readline()
    sent.read(len(end))


def operation_of(command: str, key: str, asked: dict[str, str]) -> str:
    """Return the name of the operation; operations that are HTTP methods are lower-case."""
    if not key:
        return {"HEAD": "HEAD_BUCKET", "GET": "LIST", "POST": "DELETE_MANY"}[command]
    if command == "POST":
        return "BEGIN_UPLOAD" if "uploads" in asked else "COMPLETE_UPLOAD"
    if "uploadId" in asked:
        return {"PUT": "PUT_PART", "DELETE": "ABORT_UPLOAD"}[command]
    return command


def etag(data: bytes) -> str:
    return f'"{md5(data, usedforsecurity=False).hexdigest()}"'


def result(name: str, body: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?><{name}Result>{body}</{name}Result>'.encode()


def unescaped(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")
