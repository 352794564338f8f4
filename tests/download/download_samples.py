"""Archives and an http server for the tests of the download stage."""

import hashlib
import io
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def zipped(entries: dict[str, bytes]) -> bytes:
    """Return a zip file; a name of ZipInfo is written as it stands."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(entries: list[tuple[tarfile.TarInfo, bytes]], compression: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{compression}") as archive:  # type: ignore[call-overload]
        for info, content in entries:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def tree(folder: Path) -> list[str]:
    """Return all paths below a folder, hidden ones too."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


class Server:
    """An http server on 127.0.0.1 that gives one file, with the faults that a test asks for."""

    def __init__(self) -> None:
        self.content = b""
        self.ranges = True
        self.cuts: list[int] = []  # per request: break off after so many bytes of the body
        self.statuses: list[tuple[int, dict[str, str]]] = []  # answered first, one per request
        self.contents: list[bytes] = []  # instead of `content`, one per request
        self.asked: list[str | None] = []  # the Range header of each request
        self.paths: list[str] = []  # what each request was for
        self.headers: dict[str, str] = {}
        self.says_sizes = True  # answers HEAD
        self.lie = 0  # added to the length that it states
        self.conditions: list[str | None] = []  # the If-Range header of each request
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def do_HEAD(self) -> None:
                outer.tell_size(self)

            def log_message(self, *arguments: object) -> None:
                pass

        class QuietServer(ThreadingHTTPServer):
            def handle_error(self, *arguments: object) -> None:
                """Say nothing when a client hangs up: some tests want that."""

        self._http = QuietServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def url(self, name: str) -> str:
        return f"{self.root}/files/{name}?download=1"

    def tell_size(self, handler: BaseHTTPRequestHandler) -> None:
        if self.says_sizes:
            self._head(handler, 200, self.headers | {"Content-Length": str(len(self.content))})
        else:
            self._head(handler, 405, {"Content-Length": "0"})

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        wanted = handler.headers["Range"]
        self.asked.append(wanted)
        self.paths.append(handler.path)
        self.conditions.append(handler.headers["If-Range"])
        if self.statuses:
            status, headers = self.statuses.pop(0)
            self._head(handler, status, headers | {"Content-Length": "0"})
            return
        body = self.contents.pop(0) if self.contents else self.content
        size, first, end = len(body), 0, ""
        changed = handler.headers["If-Range"] not in (None, self.headers.get("ETag"))
        if self.ranges and wanted and not changed:
            begin, _, end = wanted.removeprefix("bytes=").partition("-")
            first = int(begin)
            if first >= size:
                self._head(handler, 416, {"Content-Range": f"bytes */{size}", "Content-Length": "0"})
                return
        part = body[first : int(end) + 1 if end else None]
        headers = self.headers | {"Content-Length": str(len(part) + self.lie)}
        if first or end:
            headers["Content-Range"] = f"bytes {first}-{first + len(part) - 1}/{size}"
        self._head(handler, 206 if first or end else 200, headers)
        handler.wfile.write(part[: self.cuts.pop(0)] if self.cuts else part)

    def _head(self, handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str]) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
