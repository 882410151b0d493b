"""HDFS by its REST interface, WebHDFS: needs no Hadoop on the machine, and reaches what Spark reads as hdfs://.

fsspec has the client. It takes whatever a data node answers for the bytes of a file, every error of the name node for
a file that is not there, waits for ever, and does not notice that a file was not renamed because its name was taken.
Here every answer is looked at, only what is missing is missing, and a rename replaces, at once.
"""

from functools import lru_cache, partial
from typing import Any

from fsspec.implementations.webhdfs import WebHDFS
from pyarrow import fs
from requests import JSONDecodeError, Response

TIMEOUTS = (5.0, 60.0)
"""Seconds to connect, and between two pieces of an answer."""
ERROR = 400


class _Hdfs(WebHDFS):  # type: ignore[misc]
    """The client with the answers checked."""

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        """Rename a file, in one step over a file that has the name."""
        self._call("RENAME", method="put", path=path1, destination=path2, renameoptions="OVERWRITE")

    def exists(self, path: str, **_: Any) -> bool:
        """Whether there is a file or folder."""
        return bool(self._kind(path))

    def isfile(self, path: str) -> bool:
        """Whether there is a file."""
        return self._kind(path) == "file"

    def isdir(self, path: str) -> bool:
        """Whether there is a folder."""
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
            return list(self.ls(folder, detail=True))
        except FileNotFoundError:
            return []

    def _kind(self, path: str) -> str:
        try:
            return str(self.info(path)["type"])
        except FileNotFoundError:
            return ""

    def _connect(self) -> None:
        super()._connect()
        self.session.request = partial(self.session.request, timeout=TIMEOUTS)
        self.session.hooks["response"].append(_refuse)

    @staticmethod
    def _process_info(info: dict[str, Any]) -> dict[str, Any]:
        WebHDFS._process_info(info)
        info["mtime"] = info["modificationTime"] / 1000
        return info


@lru_cache(16)
def hdfs(address: str) -> fs.PyFileSystem:
    """Return the client of this process for `user@host:port`, or `host:port` for the user that the server takes."""
    user, _, place = address.rpartition("@")
    host, _, port = place.partition(":")
    return fs.PyFileSystem(fs.FSSpecHandler(_Hdfs(host, int(port), user=user or None)))


def _refuse(answer: Response, *_: Any, **__: Any) -> None:
    """Raise what an answer says that is an error."""
    if answer.status_code < ERROR:
        return
    try:
        found = answer.json()["RemoteException"]
    except (JSONDecodeError, KeyError, TypeError):
        found = {"exception": answer.reason, "message": answer.text[:200]}
    if found["exception"] == "FileNotFoundException":
        raise FileNotFoundError(found["message"])
    words = found["message"].partition("\n")[0]  # behind it comes a trace of Java
    raise OSError(f"{answer.status_code} {found['exception']}: {words}")
