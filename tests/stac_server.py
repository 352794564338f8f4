"""A STAC API on 127.0.0.1: it searches a few items, gives them page by page, and serves their files."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

_CONFORMS = [
    "https://api.stacspec.org/v1.0.0/core",
    "https://api.stacspec.org/v1.0.0/collections",
    "https://api.stacspec.org/v1.0.0/ogcapi-features",
    "https://api.stacspec.org/v1.0.0/item-search",
]
_QUERY = "https://api.stacspec.org/v1.0.0/item-search#query"
_PAGE = 2


class StacServer:
    """The server; `searches` are the bodies of the searches that it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.collection: dict[str, Any] = {}
        self.items: list[dict[str, Any]] = []
        self.searches: list[dict[str, Any]] = []
        self.knows_query = True
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.get(self)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.search(self, body)

            def do_HEAD(self) -> None:
                outer.get(self)

            def log_message(self, *arguments: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.root = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def get(self, handler: BaseHTTPRequestHandler) -> None:
        path = urlsplit(handler.path).path
        if path == "/":
            self._answer(handler, self._landing())
        elif path == f"/collections/{self.collection.get('id')}":
            self._answer(handler, self.collection)
        elif path.startswith("/files/") and (self.folder / path.removeprefix("/files/")).is_file():
            self._send(handler, 200, (self.folder / path.removeprefix("/files/")).read_bytes(), "image/tiff")
        else:
            self._answer(handler, {"code": "NotFound", "description": "there is no such thing"}, 404)

    def search(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        self.searches.append(body)
        first = int(parse_qs(urlsplit(handler.path).query).get("first", ["0"])[0])
        found = [item for item in self.items if self._fits(item, body)]
        links = []
        if first + _PAGE < len(found):
            href = f"{self.root}/search?first={first + _PAGE}"
            links.append({"rel": "next", "href": href, "method": "POST", "body": body})
        page = found[first : first + _PAGE]
        self._answer(handler, {"type": "FeatureCollection", "features": page, "links": links})

    def _fits(self, item: dict[str, Any], body: dict[str, Any]) -> bool:
        if "bbox" in body:
            box = body["bbox"]
        else:
            corners = body["intersects"]["coordinates"][0]
            box = [f(corner[axis] for corner in corners) for f in (min, max) for axis in (0, 1)]
        west, south, east, north = item["bbox"]
        begin, _, end = body["datetime"].partition("/")
        most = body.get("query", {}).get("eo:cloud_cover", {}).get("lte", 100)
        return (
            west <= box[2] and box[0] <= east and south <= box[3] and box[1] <= north
            and begin <= item["properties"]["datetime"] <= end
            and item["properties"].get("eo:cloud_cover", 0) <= most
        )  # fmt: skip

    def _landing(self) -> dict[str, Any]:
        links = [
            {"rel": "self", "href": f"{self.root}/"},
            {"rel": "root", "href": f"{self.root}/"},
            {"rel": "data", "href": f"{self.root}/collections"},
            {"rel": "search", "href": f"{self.root}/search", "method": "POST", "type": "application/geo+json"},
        ]
        return {
            "type": "Catalog", "stac_version": "1.0.0", "id": "test", "description": "a test", "links": links,
            "conformsTo": _CONFORMS + ([_QUERY] if self.knows_query else []),
        }  # fmt: skip

    def _answer(self, handler: BaseHTTPRequestHandler, value: Any, status: int = 200) -> None:
        self._send(handler, status, json.dumps(value).encode(), "application/json")

    def _send(self, handler: BaseHTTPRequestHandler, status: int, content: bytes, kind: str) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(content)

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
