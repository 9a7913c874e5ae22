// The console: one view at a time, by the part of the address after #, and the overview, which is
// live by server-sent events.
// Data from hosts is always set as text, never as markup.

import { draw } from "./charts.js";
import { by, count, counted, duration, follow, make, plain, size } from "./common.js";
import { Hosts } from "./hosts.js";
import { Lines } from "./lines.js";

function fill(table, head, rows) {
  const heads = make("tr");
  heads.append(...head.map((text) => Object.assign(make("th", text), { scope: "col" })));
  table.tHead.replaceChildren(heads);
  table.tBodies[0].replaceChildren(
    ...rows.map((cells) => {
      const row = make("tr");
      row.append(
        ...cells.map((cell) =>
          Array.isArray(cell) ? make("td", cell[0], cell[1]) : make("td", cell),
        ),
      );
      return row;
    }),
  );
}

// Return the state of a partition and its cause, and whether that is good.
function state(partition, receiver, pauses) {
  if (partition.error) return [`blocked: its offset cannot be read: ${partition.error}`, "bad"];
  if (receiver?.blocked) {
    const { cause, detail, since } = receiver.blocked;
    const what = cause === "moved" ? "waiting for another partition" : `blocked, ${cause}`;
    return [`${what}: ${detail}, since ${since}`, "bad"];
  }
  const missing = receiver?.running === false && receiver.missing_seconds >= 60;
  if (missing)
    return [`no receiver for ${duration(receiver.missing_seconds)}; its lines wait`, "bad"];
  if (partition.owner === null) return ["no receiver has claimed it yet", "odd"];
  if (receiver?.moved)
    return ["its offset was moved by hand; no receiver has claimed it since", "odd"];
  if (receiver?.released) return ["released by its receiver, for a standby to claim", "odd"];
  if (receiver?.running === false)
    return ["its receiver does not answer; a standby would take over", "bad"];
  const pause = pauses.find((one) => one.hosts === "*");
  if (pause) return [`paused: hosts publish nothing until ${pause.until ?? "resumed"}`, "odd"];
  if (receiver?.starting) return ["starting: Spark has not run a task yet", "odd"];
  return receiver?.running ? ["receiving", "good"] : ["owned; its receiver cannot be asked", ""];
}

function currentReplicas(stream) {
  const followers = stream.followers.filter((peer) => peer.current && !peer.offline);
  return followers.length + (stream.leader ? 1 : 0);
}

function card(title, text, note) {
  const found = make("div", undefined, "card");
  found.append(make("h3", title), make("p", text), make("small", note ?? ""));
  return found;
}

// Return the seconds until a stream is full, at the rate of some views; Infinity if its lines
// expire before.
function untilFull(stream, views, share) {
  const rate = (share * views.reduce((sum, one) => sum + one.bytes, 0)) / Math.max(1, views.length);
  if (
    stream.max_bytes === null ||
    !rate ||
    rate * (stream.max_age_seconds ?? Infinity) <= stream.max_bytes
  )
    return Infinity;
  return (stream.max_bytes - stream.bytes) / rate;
}

let history = []; // of the last hour: what came in and what was written, by view

function show(view) {
  if (view.history) history = view.history;
  if (view.point) history = [...history, view.point].slice(-1800);
  if (view.history) return;
  by("trouble").hidden = !view.trouble;
  by("trouble").textContent = view.trouble
    ? plain(view.away ? view.trouble : `The broker does not answer: ${view.trouble}`)
    : "";
  if (!view.status) return;
  const { status, partitions: rates } = view;
  const now = history.at(-1),
    oldest = status.streams.filter((one) => one.messages).map((one) => Date.parse(one.first_time));
  by("broker").textContent = `${plain(status.server)}, nats-server ${status.version}`;
  by("checks").replaceChildren(
    ...(view.checks ?? []).map((one) =>
      make("li", `${one.check}: ${plain(one.text)}`, one.status.toLowerCase()),
    ),
  );
  const pauses = view.broker?.pauses ?? [];
  const soonest = Math.min(
    ...status.streams.map((one) => untilFull(one, history.slice(-150), 1 / status.streams.length)),
  );
  const found = Object.values(view.receivers ?? {});
  const total = (name) => found.reduce((sum, one) => sum + (one[name] ?? 0), 0);
  const behind = Math.max(0, ...status.partitions.map((one) => one.behind_seconds ?? 0));
  by("cards").replaceChildren(
    card("Lines in", `${count(now.lines)}/s`, `${count(now.lines_out)}/s written`),
    card("Messages behind", count(status.behind), `the oldest by ${duration(behind)}`),
    card("Hosts", count(view.broker?.hosts ?? 0), `${count(view.active_hosts)} sent just now`),
    card(
      "Rounds in",
      `${count(now.rounds)}/s`,
      status.interval_seconds
        ? `at least ${status.interval_seconds} s between two of a host`
        : "each host chooses its interval",
    ),
    card(
      "Stored",
      size(status.store_used),
      oldest.length
        ? `oldest line ${duration((Date.parse(status.now) - Math.min(...oldest)) / 1000)}`
        : "nothing yet",
    ),
    card(
      "Full in",
      soonest === Infinity ? "never" : duration(soonest),
      soonest === Infinity ? "lines expire before" : "at the rate of five minutes",
    ),
    card(
      "Gaps",
      count(total("gaps")),
      `${counted(total("quarantined"), "message")} quarantined, of the last day`,
    ),
    ...pauses.map((one) =>
      card(
        "Paused",
        plain(one.hosts),
        plain(`${one.reason ?? ""} until ${one.until ?? "resumed"}`),
      ),
    ),
  );
  draw(
    by("chart-lines"),
    history,
    [
      { name: "in", of: (one) => one.lines },
      { name: "out", of: (one) => one.lines_out },
    ],
    count,
  );
  draw(
    by("chart-bytes"),
    history,
    [
      { name: "in", of: (one) => one.bytes },
      { name: "out", of: (one) => one.bytes_out },
    ],
    size,
  );
  fill(
    by("partitions"),
    [
      "Partition",
      "State",
      "Behind",
      "Oldest",
      "Lines/s in",
      "Lines/s written",
      "Offset",
      "Epoch",
      "Owner",
    ],
    status.partitions.map((one) => {
      const rate = rates[one.partition] ?? { lines: 0, lines_out: 0 };
      const receiver = view.receivers?.[one.partition];
      const [text, grade] = state(one, receiver, pauses);
      const paused = pauses.some((pause) => pause.hosts === "*")
        ? 0
        : view.broker?.paused_hosts[one.partition];
      const owner = [one.owner ?? "–"].concat(receiver?.standby ?? []).join(", standby: ");
      return [
        `p${one.partition}`,
        [plain(text) + (paused ? `; hosts paused: ${count(paused)}` : ""), grade],
        one.behind === null ? "–" : count(one.behind),
        one.behind_seconds ? duration(one.behind_seconds) : "–",
        count(rate.lines),
        count(rate.lines_out),
        one.next === null ? "–" : String(one.next),
        String(one.epoch ?? "–"),
        plain(owner),
      ];
    }),
  );
  fill(
    by("streams"),
    ["Stream", "Messages", "Size", "Limit", "Since", "Leader", "Replicas"],
    status.streams.map((one) => [
      one.name,
      count(one.messages),
      size(one.bytes),
      one.max_bytes === null ? "–" : size(one.max_bytes),
      one.messages ? one.first_time.slice(0, 19) + "Z" : "–",
      plain(one.leader || "–"),
      `${currentReplicas(one)} of ${one.wanted_replicas}`,
    ]),
  );
}

const views = { overview: null, hosts: new Hosts(), lines: new Lines() };

function open() {
  const [name, detail] = decodeURIComponent(location.hash.slice(1)).split("/", 2);
  const chosen = name in views ? name : "overview";
  for (const [one, view] of Object.entries(views)) {
    by(one).hidden = one !== chosen;
    if (one === chosen) view?.open(detail);
    else view?.close();
  }
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${chosen}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

addEventListener("hashchange", open);
addEventListener("keydown", (event) => {
  const chosen = { 1: "overview", 2: "hosts", 3: "lines" }[event.key];
  if (
    chosen &&
    !event.ctrlKey &&
    !event.metaKey &&
    !event.altKey &&
    event.target.tagName !== "INPUT"
  )
    location.hash = chosen;
});
follow("events", show);
open();
