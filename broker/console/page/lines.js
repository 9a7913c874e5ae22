// Lines as they arrive: at most 5,000 in the page, drawn once a frame. Skipped lines are reported.

import { by, copy, counted, follow, make, plain } from "./common.js";

const MOST = 5000; // lines in the page
const LONGEST_WAIT = 50_000; // lines kept while paused; older ones are dropped

// Return a line, or a record of several, as an item of a list; its origin is shown when the pointer
// rests on it.
export function item(piece, line) {
  const found = make("li");
  const stored = `stored ${piece.stored}, p${piece.partition}, sequence ${piece.sequence}`;
  found.title = [`${piece.host} ${piece.file}`, stored].map(plain).join("\n");
  found.append(make("b", plain(piece.host)), make("span", line.split("\n").map(plain).join("\n")));
  return found;
}

export class Lines {
  #source = null;
  #waiting = [];
  #passed = false;
  #searched = 0; // messages that were searched for the last lines; 0 for all
  #paused = false;
  #trouble = "";
  #due = false;
  #ready = false;

  open(host) {
    this.#prepare();
    if (host) by("line-hosts").value = host;
    this.#begin();
  }

  close() {
    this.#source?.close();
    this.#source = null;
  }

  #prepare() {
    if (this.#ready) return;
    this.#ready = true;
    by("lines-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#begin();
    });
    by("line-pause").addEventListener("click", () => this.#pause(!this.#paused));
    by("line-copy").addEventListener("click", async () => {
      const isCopied = await copy(this.#text());
      by("line-note").textContent = isCopied
        ? "copied"
        : "the browser does not let this page copy; use Download";
    });
    by("line-save").addEventListener("click", () => {
      const link = make("a");
      link.href = URL.createObjectURL(new Blob([this.#text()], { type: "text/plain" }));
      link.download = "lines.log";
      link.click();
      URL.revokeObjectURL(link.href);
    });
  }

  #begin() {
    this.close();
    this.#waiting = [];
    this.#passed = false;
    this.#searched = 0;
    this.#pause(false);
    this.#trouble = "";
    by("line-list").replaceChildren();
    by("line-note").textContent = "";
    const names = {
      host: "line-hosts",
      match: "line-match",
      since: "line-since",
      last: "line-last",
    };
    const wanted = Object.entries(names).map(([name, id]) => [name, by(id).value]);
    this.#source = follow(`lines?${new URLSearchParams(wanted)}`, (piece) => this.#take(piece));
  }

  #pause(paused) {
    this.#paused = paused;
    by("line-pause").setAttribute("aria-pressed", String(paused));
    by("line-pause").textContent = paused ? "Resume" : "Pause";
    this.#draw();
  }

  #take(piece) {
    if (piece.trouble) {
      this.close();
      this.#trouble = plain(piece.trouble);
      this.#draw();
      return;
    }
    this.#searched = piece.searched ?? this.#searched;
    this.#passed ||= Boolean(piece.sampled || piece.more);
    this.#waiting.push(...(piece.lines ?? []).map((line) => [piece, line]));
    if (piece.sampled) this.#waiting.push([piece, null]);
    if (this.#waiting.length > LONGEST_WAIT)
      this.#waiting.splice(0, this.#waiting.length - LONGEST_WAIT);
    this.#draw();
  }

  #draw() {
    if (this.#due || this.#paused) return;
    this.#due = true;
    requestAnimationFrame(() => {
      this.#due = false;
      if (this.#paused) return;
      const list = by("line-list");
      const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
      const some = this.#waiting.splice(0).slice(-MOST);
      list.append(
        ...some.map(([piece, line]) =>
          line === null
            ? make("li", "… lines were skipped here, as too many arrive …", "passed")
            : item(piece, line),
        ),
      );
      while (list.childElementCount > MOST) list.firstElementChild.remove();
      if (isAtEnd) list.scrollTop = list.scrollHeight;
      const sampled = this.#passed ? "; too many lines arrive: this is a sample" : "";
      const searched = this.#searched
        ? `; only the last ${counted(this.#searched, "message")} searched: give a time`
        : "";
      by("line-note").textContent =
        this.#trouble || `${counted(list.childElementCount, "line")}${sampled}${searched}`;
    });
  }

  #text() {
    return (
      [...by("line-list").children]
        .map((item) => item.lastElementChild?.textContent ?? "")
        .join("\n") + "\n"
    );
  }
}
