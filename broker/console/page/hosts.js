// The table of hosts: only the visible rows are in the page, so that thousands can be scrolled. And
// one host: its state, gaps, files and last lines.

import {
  ask, by, count, counted, duration, follow, glob, link, make, moment, on, plain, query, rate, size,
  stamp, table,
} from "./common.js";
import { address, choosable, item } from "./lines.js";

const ROW = 28, EXTRA = 6; // pixels, and rows beyond what is seen
const AGAIN = 10_000; // milliseconds
const LATE = 60; // seconds behind from which on a host's lines are late
const LINES = 10; // of one host
const STATES = ["silent", "paused", "quiet", "sending"]; // the worst first
const grade = { silent: "odd", paused: "odd", quiet: "quiet", sending: "good" };
const behind = (seconds) => (seconds === null ? "?" : seconds ? duration(seconds) : "–");
const ago = (seconds) => (seconds < 1 ? "now" : `${duration(seconds)} ago`);
const COLUMNS = [
  ["Host", (one) => one.host, (one) => plain(one.host)],
  ["State", (one) => STATES.indexOf(one.state), (one) => one.state],
  ["Last round", (one) => one.silent_seconds, (one) => ago(one.silent_seconds)],
  ["Behind", (one) => one.behind_seconds, (one) => behind(one.behind_seconds)],
  ["Lines/s", (one) => one.rate.lines, (one) => rate(one.rate.lines)],
  ["Bytes/s", (one) => one.rate.bytes, (one) => size(one.rate.bytes)],
  ["Rounds", (one) => one.messages, (one) => count(one.messages)],
  ["Files", (one) => one.files, (one) => (one.files === null ? "?" : count(one.files))],
  ["Agent", (one) => one.version, (one) => plain(one.version || "?")],
  ["Partitions", (one) => one.partitions.join(" "), (one) => one.partitions.join(" ")],
  ["Last file", (one) => one.file, (one) => plain(one.file)],
];

const classOf = (one, column) => {
  if (column === 1) return `state ${grade[one.state]}`;
  return column === 3 && (one.behind_seconds === null || one.behind_seconds > LATE) ? "odd" : "";
};

export class Hosts {
  #all = []; #shown = []; #column = 0; #down = false;
  #rows = new Map(); // by host, those in the page
  #host = ""; // that is shown
  #asked = null; // the promise of the hosts
  #source = null; // of its lines

  constructor() {
    for (const one of ["find", "find-state"]) on(one, "input", () => this.#choose());
    on("host-list", "scroll", () => requestAnimationFrame(() => this.#draw()));
    addEventListener("resize", () => this.#draw());
    setInterval(() => by("hosts").hidden || this.#ask(), AGAIN);
    by("host-head").replaceChildren(...COLUMNS.map(([title]) => make("button", title)));
    on("host-head", "click", (event) => {
      const number = [...by("host-head").children].indexOf(event.target);
      if (number < 0) return;
      this.#down = this.#column === number ? !this.#down : number > 1;
      this.#column = number;
      this.#choose();
    });
  }

  open(host, asked) {
    this.close();
    if (asked) by("find-state").value = new URLSearchParams(asked).get("state") ?? "";
    by("host").hidden = !host;
    const before = this.#host;
    this.#host = host;
    this.#asked = this.#ask();
    if (host) this.#detail(host);
    else this.#rows.get(before)?.focus({ preventScroll: true });
  }

  close() {
    this.#source?.close();
  }

  async #ask() {
    try {
      this.#all = await ask("hosts");
      by("host-list").classList.remove("stale");
      this.#choose();
    } catch (error) {
      by("host-list").classList.add("stale");
      by("host-count").textContent = plain(error.message);
    }
  }

  #choose() {
    const part = by("find").value.toLowerCase(), state = by("find-state").value;
    const [, of] = COLUMNS[this.#column];
    const [less, more] = this.#down ? [1, -1] : [-1, 1];
    this.#shown = this.#all
      .filter((one) => one.host.toLowerCase().includes(part) && (!state || one.state === state))
      .sort((one, other) => (of(one) < of(other) ? less : of(one) > of(other) ? more : 0));
    const all = counted(this.#all.length, "host");
    by("host-count").textContent = `${count(this.#shown.length)} of ${all}`;
    const order = this.#down ? "descending" : "ascending";
    [...by("host-head").children].forEach((button, number) =>
      button.setAttribute("aria-sort", number === this.#column ? order : "none"));
    by("host-rows").style.height = `${this.#shown.length * ROW}px`;
    this.#draw();
  }

  #draw() {
    const list = by("host-list");
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - EXTRA);
    const until = Math.ceil((list.scrollTop + list.clientHeight) / ROW) + EXTRA;
    const place = by("host-rows"), focused = document.activeElement;
    const some = this.#shown.slice(first, until);
    const seen = new Map(some.map((one, number) => [one.host, this.#row(one, first + number)]));
    this.#rows = seen;
    place.replaceChildren(...seen.values());
    if (place.contains(focused) && focused !== document.activeElement)
      focused.focus({ preventScroll: true });
  }

  // Return the row of a host, the one that is there if there is one: it may have the focus.
  #row(one, number) {
    const found = this.#rows.get(one.host) ?? make("a", undefined, "row");
    found.href = `#hosts/${encodeURIComponent(one.host)}`;
    found.style.top = `${number * ROW}px`;
    if (!found.childElementCount) found.append(...COLUMNS.map(() => make("span")));
    COLUMNS.forEach(([, , text], column) => {
      const cell = found.children[column], wanted = text(one);
      if (cell.textContent !== wanted) cell.textContent = wanted;
      cell.className = classOf(one, column);
    });
    found.ariaCurrent = one.host === this.#host ? "true" : null;
    return found;
  }

  async #detail(host) {
    const place = by("host");
    const head = make("h2", plain(host)), back = link("close", "#hosts");
    const all = link("all its lines", address({ host: glob(host), since: "earliest" }));
    const list = Object.assign(make("ol", undefined, "lines"), { ariaLabel: "Its last lines" });
    place.replaceChildren(head, back);
    choosable(list, ({ time, key }) => (location.hash = address({
      host: glob(host), since: moment(time - 300_000), until: moment(time + 300_000), line: key,
    })));
    const last = `lines?${query({ host: glob(host), count: LINES })}`;
    const source = this.#source = follow(last, (found) => {
      if (found.range) list.replaceChildren();
      if (!found.trouble) list.querySelector(".passed")?.remove();
      if (found.trouble && (found.final || !list.childElementCount))
        list.append(make("li", plain(found.trouble), "passed"));
      list.prepend(...(found.older ?? []).map((line) => item(line, false)));
      list.append(...(found.lines ?? []).slice(-LINES).map((line) => item(line, false)));
      while (list.childElementCount > LINES) list.firstElementChild.remove();
    });
    try {
      const address = `host?host=${encodeURIComponent(host)}`;
      const [found] = await Promise.all([ask(address), this.#asked]);
      if (this.#source !== source) return;
      const known = this.#all.find((one) => one.host === host);
      place.replaceChildren(
        head, this.#facts(found, known), make("h3", "Files"), this.#files(found),
        make("h3", "Last lines"), list, all, " · ", back,
      );
    } catch (error) {
      if (this.#source === source) place.append(make("p", plain(error.message)));
    }
  }

  #facts(found, known) {
    const late = known && (known.behind_seconds === null ? "unknown"
      : known.behind_seconds ? `by ${duration(known.behind_seconds)} at most` : "no: all received");
    const saved = found.saved ? stamp(Date.parse(found.saved)) : plain(found.error ?? "never");
    const shown = known ? [
      ["State", [known.state, `state ${grade[known.state]}`]],
      ...(known.paused ? [["Paused", plain(known.paused)]] : []),
      ["Last round", ago(known.silent_seconds)],
      ["Behind", [late, classOf(known, 3)]],
      ["Now", `${rate(known.rate.lines)} lines/s in ${rate(known.rate.rounds)} rounds/s`],
      ["In the stream", counted(known.messages, "round")],
    ] : [];
    const gaps = found.gaps === null ? "unknown, as no receiver answers"
      : `${count(found.gaps)}, in .gaps.p${found.partition}.jsonl`;
    return Object.assign(table([], [
      ...shown, ["Gaps of a day", [gaps, found.gaps ? "odd" : ""]],
      ["Agent", plain(found.version || "of an unknown version")], ["Positions saved", saved],
    ]), { className: "facts" });
  }

  #files(found) {
    const place = make("div", undefined, "wide");
    const next = (one) => `${one.unit === "entries" ? "entry" : "byte"} ${count(one.position)}`;
    place.append(table(["File", "Next to ship", "Last read"], found.files.map((one) =>
      [plain(one.path), next(one), stamp(Date.parse(one.read))])));
    return place;
  }
}
