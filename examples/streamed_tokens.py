"""A page that shows the tokens of a (fake) model as they come, and goes on where it was when it is reloaded.

It takes the address of a gRPC front with httpEnable, see docs/howto/sessions-over-http.md, and a port if you
want a certain one. Each question is a session: a lite topic of the topic `Answers`. The job that asks the
model claims the session, appends a message for each token, and ends it. The button stops the job.

Prints: the address of the page.
"""

import json
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

TOPIC = "Answers"
ANSWER = "Four fleets of ferries follow foggy fjords for fish, and not one of them is ever late."
PAUSE_S = 0.2
PAGE = """<!doctype html><meta charset="utf-8"><title>Streamed tokens</title>
<button id="ask">Ask</button> <button id="stop">Stop</button>
<p id="answer"></p><p id="state">idle</p>
<script>
const front = "http://%s/v1/sessions/%s/", show = document.getElementById.bind(document);
let stream;

function follow(session) {
  // What was seen is kept: a page that is reloaded asks only for what follows.
  const seen = JSON.parse(sessionStorage.getItem(session) || '{"text": "", "last": null}');
  show("answer").textContent = seen.text;
  show("state").textContent = "running";
  stream = new EventSource(front + session + "/events" + (seen.last === null ? "" : "?after=" + seen.last));
  const done = (word) => { stream.close(); show("state").textContent = word; };
  stream.onmessage = (event) => {
    seen.text += JSON.parse(event.data).text;
    seen.last = event.lastEventId;
    sessionStorage.setItem(session, JSON.stringify(seen));
    show("answer").textContent = seen.text;
  };
  stream.addEventListener("stop", () => done("stopped"));
  stream.addEventListener("end", () => done("done"));
}

show("ask").onclick = async () => {
  const session = await (await fetch("/ask", {method: "POST"})).text();
  location.hash = session;
  follow(session);
};
show("stop").onclick = () => fetch(front + location.hash.slice(1) + "/stop", {method: "POST"});
if (location.hash) follow(location.hash.slice(1));
</script>"""


def post(url: str, body: bytes = b"", **headers: str) -> dict[str, int]:
    request = urllib.request.Request(url, body, {k.replace("_", "-"): v for k, v in headers.items()})
    with urllib.request.urlopen(request) as answer:
        found: dict[str, int] = json.load(answer)
        return found


def answer(front: str, session: str) -> None:
    """The job of the model; the front refuses its tokens when somebody has stopped it."""
    url = f"http://{front}/v1/sessions/{TOPIC}/{session}"
    epoch = str(post(f"{url}/claim")["epoch"])
    try:
        for token in ANSWER.split():
            post(f"{url}/messages", f"{token} ".encode(), session_epoch=epoch)
            time.sleep(PAUSE_S)
        post(f"{url}/messages", session_epoch=epoch, session_kind="end")
    except urllib.error.HTTPError as refusal:
        print(f"{session} was stopped: {refusal.code}", flush=True)


def page_server(front: str, port: int) -> ThreadingHTTPServer:
    numbers = count(time.time_ns())

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(PAGE % (front, TOPIC) if self.path == "/" else "", "text/html")

        def do_POST(self) -> None:
            session = f"answer-{next(numbers)}"
            threading.Thread(target=answer, args=(front, session), daemon=True).start()
            self._answer(session, "text/plain")

        def _answer(self, text: str, kind: str) -> None:
            self.send_response(200 if text else 204)
            self.send_header("content-type", kind)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Page)


if __name__ == "__main__":
    server = page_server(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()
