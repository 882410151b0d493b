"""HDFS by its REST interface, WebHDFS: needs no Hadoop on the machine, and reaches what Spark reads as hdfs://.

fsspec has the client. It takes any answer of a data node for the bytes of a file and every error of the name node for a
missing file, it has no time limit, and it does not notice a rename that failed because the name was taken. A session
that checks each answer, and overridden public methods, correct that. Nothing private of fsspec is used.
"""

from functools import lru_cache
from typing import Any

from fsspec.implementations.webhdfs import WebHDFS
from pyarrow import fs
from requests import JSONDecodeError, Response, Session

TIMEOUTS = (5.0, 60.0)
"""Seconds to connect, and between two pieces of an answer."""
ERROR = 400


class _CheckedSession(Session):
    """Checks every answer and limits every wait; a rename replaces a file that has the name, in one step."""

    def request(self, method: str, url: str | bytes, params: Any = None, *given: Any, **more: Any) -> Response:
        if params and params.get("op") == "RENAME":
            params = {**params, "renameoptions": "OVERWRITE"}
        answer = super().request(method, url, params, *given, **{"timeout": TIMEOUTS, **more})
        _refuse(answer)
        return answer


class _Hdfs(WebHDFS):  # type: ignore[misc]
    """The client, which reports errors other than a missing file, and the time at which a file was written."""

    def info(self, path: str) -> dict[str, Any]:
        return _with_time(super().info(path))

    def exists(self, path: str, **_: Any) -> bool:
        return bool(self._kind(path))

    def isfile(self, path: str) -> bool:
        return self._kind(path) == "file"

    def isdir(self, path: str) -> bool:
        return self._kind(path) == "directory"

    def find(self, path: str, maxdepth: int | None = None, **_: Any) -> dict[str, dict[str, Any]]:
        """Return files and folders below a folder with what is known of them; one that goes meanwhile is left out."""
        found, waiting = dict[str, dict[str, Any]](), [(path, 1)]
        while waiting:
            folder, depth = waiting.pop()
            for info in self._inside(folder):
                found[info["name"]] = info
                if info["type"] == "directory" and depth != maxdepth:
                    waiting.append((info["name"], depth + 1))
        return found

    def _inside(self, folder: str) -> list[dict[str, Any]]:
        try:
            return [_with_time(info) for info in self.ls(folder, detail=True)]
        except FileNotFoundError:
            return []

    def _kind(self, path: str) -> str:
        try:
            return str(self.info(path)["type"])
        except FileNotFoundError:
            return ""


def _with_time(info: dict[str, Any]) -> dict[str, Any]:
    return {**info, "mtime": info["modificationTime"] / 1000}


class _Handler(fs.FSSpecHandler):  # type: ignore[misc]
    """Lists a folder also if another process creates it meanwhile: the base class then takes it for a file."""

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        try:
            found = super().get_file_info_selector(selector)
        except NotADirectoryError:
            found = super().get_file_info_selector(selector)
        return list(found)


@lru_cache(16)
def hdfs(address: str) -> fs.PyFileSystem:
    """Return the client of this process for `user@host:port`, or `host:port` for the user that the server takes."""
    user, _, place = address.rpartition("@")
    host, _, port = place.partition(":")
    client = _Hdfs(host, int(port), user=user or None)
    client.session = _CheckedSession()
    return fs.PyFileSystem(_Handler(client))


def _refuse(answer: Response) -> None:
    if answer.status_code < ERROR:
        return
    try:
        found = answer.json()["RemoteException"]
    except (JSONDecodeError, KeyError, TypeError):
        found = {"exception": answer.reason, "message": answer.text[:200]}
    if found["exception"] == "FileNotFoundException":
        raise FileNotFoundError(found["message"])
    words = found["message"].partition("\n")[0]  # a Java stack trace follows
    raise OSError(f"{answer.status_code} {found['exception']}: {words}")
