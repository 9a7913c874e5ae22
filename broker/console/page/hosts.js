// The table of hosts: only the rows that can be seen are in the page, so that thousands scroll. And one host's files.

import { by, count, duration, make, plain, size } from "./common.js";

const ROW = 28, EXTRA = 6; // pixels, and rows beyond what is seen
const AGAIN = 10_000; // milliseconds
const SILENT = 60; // seconds
const COLUMNS = [
  ["Host", (one) => one.host, plain],
  ["Silent", (one) => one.silent_seconds, duration],
  ["Lines/s", (one) => one.rate.lines, count],
  ["Bytes/s", (one) => one.rate.bytes, size],
  ["Messages", (one) => one.messages, count],
  ["Partitions", (one) => one.partitions.join(" "), (text) => text],
  ["Paused", (one) => one.paused ?? "", plain],
  ["Last file", (one) => one.file, plain],
];

export class Hosts {
  #all = [];
  #shown = [];
  #column = 0;
  #down = false;
  #timer = 0;
  #ready = false;

  open(host) {
    this.#prepare();
    by("host").hidden = !host;
    if (host) this.#detail(host);
    clearTimeout(this.#timer);
    this.#ask();
  }

  close() {
    clearTimeout(this.#timer);
  }

  #prepare() {
    if (this.#ready) return;
    this.#ready = true;
    by("find").addEventListener("input", () => this.#choose());
    by("only-silent").addEventListener("change", () => this.#choose());
    by("find").form.addEventListener("submit", (event) => event.preventDefault());
    by("host-list").addEventListener("scroll", () => requestAnimationFrame(() => this.#draw()));
    addEventListener("resize", () => this.#draw());
    by("host-head").replaceChildren(...COLUMNS.map(([title], number) => {
      const button = make("button", title);
      button.addEventListener("click", () => {
        this.#down = this.#column === number ? !this.#down : number > 0;
        this.#column = number;
        this.#choose();
      });
      return button;
    }));
  }

  async #ask() {
    try {
      const answer = await fetch("hosts");
      if (!answer.ok) throw new Error(await answer.text());
      this.#all = await answer.json();
      this.#choose();
    } catch (error) {
      by("host-count").textContent = plain(String(error.message));
    }
    if (!by("hosts").hidden) this.#timer = setTimeout(() => this.#ask(), AGAIN);
  }

  #choose() {
    const wanted = by("find").value.toLowerCase(), silent = by("only-silent").checked;
    const of = COLUMNS[this.#column][1];
    this.#shown = this.#all
      .filter((one) => one.host.toLowerCase().includes(wanted) && (!silent || one.silent_seconds > SILENT))
      .sort((a, b) => (of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : 0) * (this.#down ? -1 : 1));
    by("host-count").textContent = `${count(this.#shown.length)} of ${count(this.#all.length)} hosts`;
    [...by("host-head").children].forEach((button, number) => {
      button.setAttribute("aria-sort", number !== this.#column ? "none" : this.#down ? "descending" : "ascending");
    });
    by("host-rows").style.height = `${this.#shown.length * ROW}px`;
    this.#draw();
  }

  #draw() {
    const list = by("host-list");
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - EXTRA);
    const until = Math.ceil((list.scrollTop + list.clientHeight) / ROW) + EXTRA;
    by("host-rows").replaceChildren(...this.#shown.slice(first, until).map((one, place) => {
      const row = make("a", undefined, one.paused ? "row paused" : "row");
      row.href = `#hosts/${encodeURIComponent(one.host)}`;
      row.style.top = `${(first + place) * ROW}px`;
      row.append(...COLUMNS.map(([, of, format]) => make("span", format(of(one)))));
      return row;
    }));
  }

  async #detail(host) {
    const place = by("host");
    place.replaceChildren(make("h2", plain(host)));
    const known = this.#all.find((one) => one.host === host);
    if (known) {
      const told = [`${count(known.messages)} messages in the stream`, `the last ${duration(known.silent_seconds)} ago`, `${count(known.rate.lines)} lines/s`];
      place.append(make("p", plain([...told, ...(known.paused ? [`paused ${known.paused}`] : [])].join(", "))));
    }
    const lines = make("a", "its last lines");
    lines.href = `#lines/${encodeURIComponent(host)}`;
    const back = make("a", "close");
    back.href = "#hosts";
    try {
      const answer = await fetch(`host?host=${encodeURIComponent(host)}`);
      if (!answer.ok) throw new Error(await answer.text());
      const found = await answer.json();
      const table = make("table");
      const head = make("tr");
      head.append(...["File", "Shipped up to byte", "Last read"].map((text) => make("th", text)));
      table.append(head, ...found.files.map((file) => {
        const row = make("tr");
        row.append(make("td", plain(file.path)), make("td", count(file.position)), make("td", file.read.slice(0, 19) + "Z"));
        return row;
      }));
      const saved = found.saved ? `as its shipper saved them at ${found.saved.slice(0, 19)}Z, and by its last message` : found.error ?? "its shipper has saved no positions";
      place.append(make("p", plain(`${found.files.length} file${found.files.length === 1 ? "" : "s"}, ${saved}`)), table, lines, make("span", " · "), back);
    } catch (error) {
      place.append(make("p", plain(String(error.message))), back);
    }
  }
}
