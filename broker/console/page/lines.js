// Lines as they come: at most a few thousand in the page, drawn once a frame; what is passed over is said.

import { by, count, follow, make, plain } from "./common.js";

const MOST = 5000; // lines in the page
const LONGEST_WAIT = 50_000; // lines that wait while paused; older ones go

export class Lines {
  #source = null;
  #waiting = [];
  #passed = 0;
  #paused = false;
  #match = null;
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
    by("line-copy").addEventListener("click", () => navigator.clipboard.writeText(this.#text()));
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
    this.#passed = 0;
    this.#pause(false);
    by("line-list").replaceChildren();
    by("line-note").textContent = "";
    try {
      const text = by("line-match").value;
      this.#match = text ? new RegExp(text, "u") : null;
    } catch (error) {
      by("line-note").textContent = error.message;
      return;
    }
    const wanted = { host: by("line-hosts").value, since: by("line-since").value, last: by("line-last").value };
    this.#source = follow(`lines?${new URLSearchParams(wanted)}`, (piece) => this.#take(piece));
  }

  #pause(paused) {
    this.#paused = paused;
    by("line-pause").setAttribute("aria-pressed", String(paused));
    by("line-pause").textContent = paused ? "Go on" : "Pause";
    this.#draw();
  }

  #take(piece) {
    if (piece.trouble) {
      by("line-note").textContent = plain(piece.trouble);
      if (piece.away) this.close();
      return;
    }
    if (piece.sampled) this.#passed += 1;
    this.#passed += piece.more ? 1 : 0;
    for (const line of piece.lines ?? []) {
      if (!this.#match || this.#match.test(line)) this.#waiting.push([piece, line]);
    }
    if (piece.sampled) this.#waiting.push([piece, null]);
    if (this.#waiting.length > LONGEST_WAIT) this.#waiting.splice(0, this.#waiting.length - LONGEST_WAIT);
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
      list.append(...some.map(([piece, line]) => (line === null ? make("li", "… lines were passed over here, to keep up …", "passed") : this.#item(piece, line))));
      while (list.childElementCount > MOST) list.firstElementChild.remove();
      if (isAtEnd) list.scrollTop = list.scrollHeight;
      const sampled = this.#passed ? "; more came than can be shown: this is a sample" : "";
      by("line-note").textContent = `${count(list.childElementCount)} lines${sampled}`;
    });
  }

  #item(piece, line) {
    const item = make("li");
    item.title = plain(`${piece.host} ${piece.file}\nstored ${piece.stored}, p${piece.partition}, sequence ${piece.sequence}`);
    item.append(make("b", plain(piece.host)), make("span", plain(line)));
    return item;
  }

  #text() {
    return [...by("line-list").children].map((item) => item.lastElementChild?.textContent ?? "").join("\n") + "\n";
  }
}
