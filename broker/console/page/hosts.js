// The table of hosts: only the visible rows are in the page, so that thousands can be scrolled. And
// one host: its rounds, gaps, files and last lines.

import { by, count, counted, duration, follow, make, plain, size } from "./common.js";
import { item } from "./lines.js";

const ROW = 28,
  EXTRA = 6; // pixels, and rows beyond what is seen
const AGAIN = 10_000; // milliseconds
const SILENT = 60; // seconds
const LINES = 10; // of one host
const rate = (number) => (number < 10 ? number.toFixed(1) : count(number));
const behind = (seconds) => (seconds === null ? "?" : seconds ? duration(seconds) : "–");
const COLUMNS = [
  ["Host", (one) => one.host, plain],
  [
    "Silent",
    (one) => one.silent_seconds,
    (seconds, one) => duration(seconds) + (one.paused ? ", paused" : ""),
  ],
  ["Behind", (one) => one.behind_seconds, behind],
  ["Lines/s", (one) => one.rate.lines, count],
  ["Bytes/s", (one) => one.rate.bytes, size],
  ["Rounds", (one) => one.messages, count],
  ["Files", (one) => one.files, (number) => (number === null ? "?" : count(number))],
  ["Agent", (one) => one.version, (version) => plain(version || "?")],
  ["Partitions", (one) => one.partitions.join(" "), (text) => text],
  ["Paused", (one) => one.paused ?? "", plain],
  ["Last file", (one) => one.file, plain],
];

function cells(name, texts) {
  const row = make("tr");
  row.append(...texts.map((text) => make(name, text)));
  return row;
}

// Return how many gaps of a host its receivers have counted in the last day, and where each is
// listed.
function gaps(found) {
  const texts = found.gaps.map(({ partition, host }) => {
    const known =
      host === null
        ? "unknown, its receiver does not answer"
        : `${count(host)} in the last day, or since its receiver started`;
    const listed = `.gaps.p${partition}.jsonl in the receiver's output folder`;
    const table = `\`select * from gaps\` of its p${partition}.db`;
    return `p${partition}: ${known}; each is a line of ${listed}, and a row of ${table}`;
  });
  return texts.length
    ? `Gaps: ${texts.join(". ")}`
    : "Gaps: unknown, the stream holds none of its rounds";
}

export class Hosts {
  #all = [];
  #shown = [];
  #column = 0;
  #down = false;
  #timer = 0;
  #ready = false;
  #rows = new Map(); // by host, those in the page
  #host = ""; // that is shown
  #source = null; // of its lines

  open(host = "") {
    this.#prepare();
    this.#leave();
    by("host").hidden = !host;
    if (host) this.#detail(host);
    else this.#rows.get(this.#host)?.focus({ preventScroll: true });
    this.#host = host;
    clearTimeout(this.#timer);
    this.#ask();
  }

  close() {
    clearTimeout(this.#timer);
    this.#leave();
  }

  #leave() {
    this.#source?.close();
    this.#source = null;
  }

  #prepare() {
    if (this.#ready) return;
    this.#ready = true;
    by("find").addEventListener("input", () => this.#choose());
    by("only-silent").addEventListener("change", () => this.#choose());
    by("find").form.addEventListener("submit", (event) => event.preventDefault());
    by("host-list").addEventListener("scroll", () => requestAnimationFrame(() => this.#draw()));
    addEventListener("resize", () => this.#draw());
    by("host-head").replaceChildren(
      ...COLUMNS.map(([title], number) => {
        const button = make("button", title);
        button.addEventListener("click", () => {
          this.#down = this.#column === number ? !this.#down : number > 0;
          this.#column = number;
          this.#choose();
        });
        return button;
      }),
    );
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
    const wanted = by("find").value.toLowerCase(),
      silent = by("only-silent").checked;
    const of = COLUMNS[this.#column][1];
    this.#shown = this.#all
      .filter(
        (one) =>
          one.host.toLowerCase().includes(wanted) && (!silent || one.silent_seconds > SILENT),
      )
      .sort(
        (a, b) =>
          ((of(a) ?? -1) < (of(b) ?? -1) ? -1 : (of(a) ?? -1) > (of(b) ?? -1) ? 1 : 0) *
          (this.#down ? -1 : 1),
      );
    by("host-count").textContent =
      `${count(this.#shown.length)} of ${counted(this.#all.length, "host")}`;
    [...by("host-head").children].forEach((button, number) => {
      button.setAttribute(
        "aria-sort",
        number !== this.#column ? "none" : this.#down ? "descending" : "ascending",
      );
    });
    by("host-rows").style.height = `${this.#shown.length * ROW}px`;
    this.#draw();
  }

  #draw() {
    const list = by("host-list");
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - EXTRA);
    const until = Math.ceil((list.scrollTop + list.clientHeight) / ROW) + EXTRA;
    const place = by("host-rows"),
      focused = document.activeElement;
    const seen = new Map(
      this.#shown
        .slice(first, until)
        .map((one, number) => [one.host, this.#row(one, first + number)]),
    );
    for (const [host, row] of this.#rows) if (!seen.has(host)) row.remove();
    this.#rows = seen;
    let next = place.firstElementChild;
    for (const row of seen.values()) {
      if (row === next) next = next.nextElementSibling;
      else place.insertBefore(row, next);
    }
    if (place.contains(focused) && focused !== document.activeElement)
      focused.focus({ preventScroll: true });
  }

  // Return the row of a host, the one that is there if there is one: it may have the focus.
  #row(one, number) {
    const row = this.#rows.get(one.host) ?? make("a");
    row.className = one.paused ? "row paused" : "row";
    row.href = `#hosts/${encodeURIComponent(one.host)}`;
    row.style.top = `${number * ROW}px`;
    const texts = COLUMNS.map(([, of, format]) => format(of(one), one));
    if (!row.childElementCount) row.append(...texts.map((text) => make("span", text)));
    else
      texts.forEach((text, column) => {
        if (row.children[column].textContent !== text) row.children[column].textContent = text;
      });
    return row;
  }

  async #detail(host) {
    const place = by("host");
    const back = make("a", "close"),
      lines = make("a", "all its lines");
    back.href = "#hosts";
    lines.href = `#lines/${encodeURIComponent(host)}`;
    const list = make("ol", undefined, "lines");
    list.setAttribute("aria-label", "Its last lines");
    this.#source = follow(`lines?${new URLSearchParams({ host, last: LINES })}`, (piece) => {
      if (piece.trouble) this.#leave();
      if (piece.trouble) list.append(make("li", plain(piece.trouble), "passed"));
      list.append(...(piece.lines ?? []).slice(-LINES).map((line) => item(piece, line)));
      while (list.childElementCount > LINES) list.firstElementChild.remove();
    });
    place.replaceChildren(make("h2", plain(host)), back);
    try {
      const answer = await fetch(`host?host=${encodeURIComponent(host)}`);
      if (!answer.ok) throw new Error(await answer.text());
      const parts = this.#parts(
        await answer.json(),
        this.#all.find((one) => one.host === host),
      );
      if (this.#host === host)
        place.replaceChildren(
          make("h2", plain(host)),
          ...parts,
          make("h3", "Last lines"),
          list,
          lines,
          make("span", " · "),
          back,
        );
    } catch (error) {
      place.append(make("p", plain(String(error.message))));
    }
  }

  // Return what is known of a host, as paragraphs and the table of its files.
  #parts(found, known) {
    const table = make("table");
    const rows = found.files.map((file) =>
      cells("td", [
        plain(file.path),
        `${file.unit === "entries" ? "entry" : "byte"} ${count(file.position)}`,
        file.read.slice(0, 19) + "Z",
      ]),
    );
    table.append(cells("th", ["File", "Next to ship", "Last read"]), ...rows);
    const saved = found.saved
      ? `as its shipper saved them at ${found.saved.slice(0, 19)}Z, and by its last round`
      : (found.error ?? "its shipper has saved no positions");
    const version = found.version || "of an unknown version";
    const files = `${counted(found.files.length, "file")}, ${saved}; agent ${version}`;
    const rates =
      known && `${rate(known.rate.rounds)} rounds/s with ${rate(known.rate.lines)} lines/s`;
    const facts = known
      ? [
          `${counted(known.messages, "round")} in the stream, ${rates}`,
          `the last one ${duration(known.silent_seconds)} ago`,
          known.behind_seconds
            ? `not all received: behind by ${duration(known.behind_seconds)} at most`
            : known.behind_seconds === 0
              ? "all received"
              : "unknown how far behind",
          ...(known.paused ? [known.paused] : []),
        ]
      : [];
    return [...[facts.join(", "), gaps(found), files].map((text) => make("p", plain(text))), table];
  }
}
