// Lines: a search whose whole request is in the address, so that a link or "back" repeats it. What
// is found is drawn once a frame; at most 5,000 lines are in the page.

import { Histogram } from "./charts.js";
import {
  ask, by, clock, copy, counted, follow, glob, link, make, moment, on, parameters, plain, query,
  setZone, size, stamp, table, zone,
} from "./common.js";

const MOST = 5000, MOST_BARS = 500; // lines in the page, and bars of a histogram
const LONGEST_WAIT = 50_000; // lines kept while paused; older ones are dropped
const AROUND = 50; // lines before and after one
const FIELDS = ["host", "file", "match", "level", "since", "until", "order", "count"];
// a time that means the same on other days, or is counted back from now
const LASTING = /^((seq:)?\d+|([\d.]+(ms|[smhdw]))+|earliest|now|\S+T\S+([+-]\d\d:\d\d|Z))?$/i;

// Return the address of a search for lines: only what is given is in it.
export const address = (wanted) =>
  `#lines?${query(Object.entries(wanted).filter(([, value]) => value).sort())}`;

// Return a line, or a record of several, as an item of a list.
export function item(line, hasHost = true) {
  const found = Object.assign(make("li", undefined, line.level), { line, tabIndex: -1 });
  found.append(make("time", clock(line.time)));
  if (hasHost) found.append(make("b", plain(line.host)));
  found.append(make("span", line.text.split("\n").map(plain).join("\n")));
  return found;
}

// Let the arrow keys go through the items of a list, and Enter and a click choose one.
export function choosable(list, choose) {
  list.addEventListener("click", (event) => {
    const found = event.target.closest("li");
    if (found?.line && !getSelection().toString()) choose(found.line);
  });
  list.addEventListener("keydown", (event) => {
    const now = document.activeElement.closest("li");
    if (event.key === "Enter" && now?.line) choose(now.line);
    const next = {
      ArrowDown: now?.nextElementSibling ?? (now ? null : list.firstElementChild),
      ArrowUp: now?.previousElementSibling ?? (now ? null : list.lastElementChild),
    }[event.key];
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
}

export class Lines {
  #source = null; #histogram; #paused = false; #due = false;
  #wanted = ""; // what is shown, as it is in the address
  #line = null; // the key of the line that is shown among those around it
  #waiting = []; #older = []; // lines after and before those that are shown
  #state = {}; // progress, and what ended the search

  constructor() {
    this.#histogram = new Histogram((from, to) =>
      this.#go({ ...this.#shown(), since: moment(from), until: moment(to) }));
    on("lines-form", "submit", (event) => {
      event.preventDefault();
      this.close(); // so that it begins, whatever is shown
      this.#go(this.#entered());
    });
    on("line-pause", "click", () => this.#pause(!this.#paused));
    on("line-stop", "click", () => this.#end({ stopped: true }));
    on("line-copy", "click", async () => (by("line-said").textContent = await copy(this.#text())));
    on("line-save", "click", () => {
      const href = URL.createObjectURL(new Blob([this.#text()], { type: "text/plain" }));
      Object.assign(make("a"), { href, download: "lines.log" }).click();
      URL.revokeObjectURL(href);
    });
    for (const list of ["line-list", "around-list"])
      choosable(by(list), (line) => this.#go({ ...this.#shown(), line: line.key }));
    on("around", "close", () => this.#line && this.#go(this.#shown()));
    on("around-copy", "click", async () =>
      (by("around-said").textContent = await copy(location.href)));
    by("line-filters").open = matchMedia("(min-width: 50rem)").matches;
  }

  // Show what an address asks for; a search that is shown already goes on.
  open(_, asked) {
    const wanted = parameters(asked || this.#wanted || "since=1h");
    this.#line = wanted.get("line");
    wanted.delete("line");
    if (wanted.has("zone")) setZone(wanted.get("zone"));
    wanted.set("zone", zone);
    wanted.sort();
    if (query(wanted) !== this.#wanted || !this.#source) this.#begin(wanted);
    else if (!asked) history.replaceState(null, "", address(this.#shown()));
    if (this.#line) this.#around(this.#line);
    else by("around").close();
  }

  close() {
    this.#source?.close();
    this.#source = this.#line = null;
    by("around").close();
  }

  // Show the same in the zone that was chosen.
  refresh = () => this.#go({ ...this.#shown(), line: this.#line });

  #entered() {
    return Object.fromEntries(FIELDS.map((name) => [name, by(`line-${name}`).value.trim()]));
  }

  #shown() {
    return Object.fromEntries(parameters(this.#wanted));
  }

  #go(wanted) {
    const hash = address({ ...wanted, zone });
    if (hash === location.hash) this.open("", hash.split("?")[1]);
    else location.hash = hash;
  }

  #begin(wanted) {
    this.#source?.close();
    this.#wanted = query(wanted);
    for (const name of FIELDS)
      by(`line-${name}`).value = wanted.get(name) ?? { order: "last", count: "100" }[name] ?? "";
    by("line-summary").textContent = plain([...wanted].map((one) => one.join(" ")).join(", "));
    by("line-said").textContent = "";
    this.#clear(null);
    this.#pause(false);
    const bars = Math.max(20, Math.min(MOST_BARS, Math.floor(by("histogram").clientWidth / 9)));
    this.#source = follow(`lines?${this.#wanted}&buckets=${bars}`, (found) => this.#take(found));
  }

  // Forget what was found: a search begins, perhaps again, as its connection was lost. Have the
  // address say which times they are, so that it finds the same tomorrow and in any zone.
  #clear(range) {
    const wanted = this.#shown(), before = address({ ...wanted, line: this.#line });
    const moves = /\d(ms|[smhdw])$/i.test(wanted.since ?? ""); // then its end does, too
    for (const [name, time] of [["since", range?.since], ["until", range?.to]])
      if (!moves && time % 1000 === 0 && !LASTING.test(wanted[name] ?? ""))
        wanted[name] = moment(time);
    this.#wanted = address(wanted).split("?")[1];
    if (!range || location.hash === before) // or else another one is about to be opened
      history.replaceState(null, "", address({ ...wanted, line: this.#line }));
    [this.#waiting, this.#older, this.#state] = [[], [], {}];
    by("line-list").replaceChildren();
    this.#histogram.open(range);
  }

  #end(state) {
    this.#source?.close();
    Object.assign(this.#state, state);
    this.#draw();
  }

  #pause(paused) {
    this.#paused = paused;
    by("line-pause").ariaPressed = String(paused);
    by("line-pause").textContent = paused ? "Resume" : "Pause";
    this.#draw();
  }

  #take(found) {
    if (found.final) return this.#end(found);
    if (found.range) this.#clear(found.range);
    this.#histogram.add(found.counts ?? []);
    if (found.older) this.#older = [...found.older, ...this.#older];
    const lines = [...(found.lines ?? []), ...(found.sampled ? [null] : [])];
    this.#waiting = [...this.#waiting, ...lines].slice(-LONGEST_WAIT);
    Object.assign(this.#state, { trouble: "", sampled: false }, found);
    if (found.ended) this.#source.close();
    this.#draw();
  }

  #draw() {
    if (this.#due) return;
    this.#due = true;
    requestAnimationFrame(() => {
      this.#due = false;
      this.#histogram.draw();
      if (!this.#paused) this.#append();
      by("line-note").textContent = this.#note();
      by("line-stop").hidden = !this.#isSearching();
      by("line-pause").hidden = !this.#state.follows;
      by("lines").ariaBusy = String(this.#isSearching());
    });
  }

  #append() {
    const list = by("line-list");
    const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    list.prepend(...this.#older.splice(0).map((line) => item(line)));
    const skipped = "… lines were skipped here, as too many arrive …";
    const show = (line) => (line ? item(line) : make("li", skipped, "passed"));
    list.append(...this.#waiting.splice(0).slice(-MOST).map(show));
    while (list.childElementCount > MOST) list.firstElementChild.remove();
    if (isAtEnd && by("line-order").value === "last") list.scrollTop = list.scrollHeight;
  }

  #isSearching() {
    const { searched, stopped, trouble, ended } = this.#state;
    return !(searched || stopped || trouble || ended);
  }

  #note() {
    const { progress, trouble, stopped, sampled, follows, note } = this.#state;
    if (trouble) return plain(trouble);
    const isSearching = this.#isSearching();
    const until = progress?.until && isSearching ? `, until ${stamp(progress.until)}` : "";
    return [
      counted(by("line-list").childElementCount, "line"),
      progress?.of ? `searched ${size(progress.read)} of ${size(progress.of)}${until}`
        : isSearching && "searching",
      stopped ? "stopped" : follows && !isSearching && "following new lines",
      sampled && "too many lines arrive: this is a sample",
      note && plain(note),
    ].filter(Boolean).join(" · ");
  }

  #text() {
    const texts = [...by("line-list").querySelectorAll("span")].map((one) => one.textContent);
    return `${texts.join("\n")}\n`;
  }

  // Show a line, by its key, among those before and after it of the same host and file.
  async #around(key) {
    const dialog = by("around");
    if (!dialog.open) dialog.showModal();
    by("around-said").textContent = "";
    by("around-title").textContent = "Reading …";
    try {
      const found = await ask(`around?${new URLSearchParams({ line: key, lines: AROUND })}`);
      if (key === this.#line) this.#detail(found);
    } catch (error) {
      if (key !== this.#line) return;
      by("around-title").textContent = plain(error.message);
      for (const one of ["around-facts", "around-list"]) by(one).replaceChildren();
    }
  }

  #detail({ lines, chosen }) {
    const line = lines[chosen];
    by("around-title").textContent = plain(`${line.host} ${line.file}`);
    by("around-facts").replaceChildren(
      table([], [
        ["Stored", `${stamp(line.time)} ${zone}, ${new Date(line.time).toISOString()}`],
        ["Host", link(plain(line.host), `#hosts/${encodeURIComponent(line.host)}`)],
        ["File", plain(line.file || "none: from another NATS client")],
        ["Level", [line.level || "none", line.level ? `level ${line.level}` : ""]],
        ["Message", plain(line.key)],
      ]),
    );
    by("around-all").href = address({
      host: glob(line.host), file: glob(line.file), zone, since: moment(lines[0].time),
      until: moment(line.time + 300_000), order: "first", count: "1000",
    });
    by("around-list").replaceChildren(...lines.map((one) => item(one, false)));
    const found = by("around-list").children[chosen];
    found.ariaCurrent = "true";
    found.scrollIntoView({ block: "center" });
    found.focus({ preventScroll: true });
  }
}
