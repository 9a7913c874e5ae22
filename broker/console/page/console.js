// The console: one view at a time, by the part of the address after #, and the overview, which is
// live by server-sent events. Data from hosts is always set as text, never as markup.

import { Chart } from "./charts.js";
import {
  by, clock, count, duration, follow, link, LOCAL, make, on, parameters, plain, rate, setZone, size,
  stamp, table, zone,
} from "./common.js";
import { Hosts } from "./hosts.js";
import { Lines } from "./lines.js";

const ENOUGH = 1800; // points of a chart

// Return the state of a partition, its cause if no check says it, and its grade.
function state(partition, receiver, pauses) {
  if (partition.error) return ["blocked", "bad"]; // a check says why
  if (receiver?.blocked) {
    const { cause, detail, since } = receiver.blocked;
    const what = cause === "moved" ? "waiting for another partition" : `blocked, ${cause}`;
    return [`${what}: ${detail}, since ${stamp(Date.parse(since))}`, "bad"];
  }
  if (partition.owner === null) return ["never received", "odd"];
  if (receiver?.running === false && receiver.missing_seconds >= 60) return ["no receiver", "bad"];
  if (receiver?.moved) return ["its offset was moved by hand; nobody has claimed it since", "odd"];
  if (receiver?.released) return ["released by its receiver, for a standby to claim", "odd"];
  if (receiver?.running === false) return ["its receiver does not answer", "bad"];
  const pause = pauses.find((one) => one.hosts === "*");
  if (pause) return [`paused: hosts publish nothing until ${pause.until ?? "resumed"}`, "odd"];
  if (receiver?.starting) return ["starting: Spark has not run a task yet", "odd"];
  return receiver?.running ? ["receiving", "good"] : ["owned; its receiver cannot be asked", ""];
}

function card(title, text, note, isOdd) {
  const found = make("div", undefined, isOdd ? "card odd" : "card");
  found.append(make("h3", title), make("p", text), make("small"));
  found.lastElementChild.append(note ?? "");
  return found;
}

// Return the seconds until one of some streams is full, at the rate of five minutes; Infinity if
// its lines expire before.
function untilFull(stream, streams) {
  const some = points.slice(-150), sum = some.reduce((sum, one) => sum + one.bytes, 0);
  const bytes = sum / (some.length || 1) / streams;
  const expires = bytes * (stream.max_age_seconds ?? Infinity) <= stream.max_bytes;
  if (stream.max_bytes === null || !bytes || expires) return Infinity;
  return (stream.max_bytes - stream.bytes) / bytes;
}

function cards(view, now) {
  const { status, broker } = view, receivers = Object.values(view.receivers ?? {});
  const total = (name) => receivers.reduce((sum, one) => sum + (one[name] ?? 0), 0);
  const behind = Math.max(0, ...status.partitions.map((one) => one.behind_seconds ?? 0));
  const filled = status.streams.filter((one) => one.messages);
  const oldest = Math.min(...filled.map((one) => Date.parse(one.first_time)));
  const soonest = Math.min(...status.streams.map((one, _, { length }) => untilFull(one, length)));
  const silent = view.silent_hosts
    ? link(`${count(view.silent_hosts)} silent for over 15 min`, "#hosts?state=silent")
    : `${count(view.active_hosts)} sent just now`;
  const gaps = total("gaps"), quarantined = total("quarantined");
  return [
    card("Lines in", `${rate(now.lines)}/s`, `${rate(now.lines_out)}/s written`),
    card("Messages behind", count(status.behind), `oldest by ${duration(behind)}`, behind > 600),
    card("Hosts", count(broker?.hosts ?? 0), silent, view.silent_hosts),
    card("Rounds in", `${rate(now.rounds)}/s`, status.interval_seconds
      ? `at least ${status.interval_seconds} s between two of a host`
      : "each host chooses its interval"),
    card("Stored", size(status.store_used),
      filled.length ? `oldest line ${duration((Date.parse(status.now) - oldest) / 1000)}` : "–"),
    card("Full in", soonest === Infinity ? "never" : duration(soonest),
      soonest === Infinity ? "lines expire before" : "at the rate of five minutes"),
    card("Gaps", count(gaps), `${count(quarantined)} quarantined, in a day`, gaps + quarantined),
    ...(broker?.pauses ?? []).map(({ hosts, reason, until }) =>
      card("Paused", plain(hosts), plain(`${reason ?? ""} until ${until ?? "resumed"}`), true)),
  ];
}

function partitions(view) {
  const pauses = view.broker?.pauses ?? [];
  return view.status.partitions.map((one) => {
    const rates = view.partitions[one.partition] ?? { lines: 0, lines_out: 0 };
    const receiver = view.receivers?.[one.partition];
    const [text, grade] = state(one, receiver, pauses);
    const all = pauses.some((pause) => pause.hosts === "*");
    const paused = all ? 0 : view.broker?.paused_hosts[one.partition];
    const owner = [one.owner ?? "–"].concat(receiver?.standby ?? []).join(", standby: ");
    return [
      `p${one.partition}`,
      [plain(text) + (paused ? `; hosts paused: ${count(paused)}` : ""), `state ${grade}`],
      one.behind === null ? "–" : count(one.behind),
      one.behind_seconds ? duration(one.behind_seconds) : "–",
      rate(rates.lines), rate(rates.lines_out),
      String(one.offset ?? "–"), String(one.epoch ?? "–"), plain(owner),
    ];
  });
}

function streams(status) {
  return status.streams.map((one) => {
    const followers = one.followers.filter((peer) => peer.current && !peer.offline).length;
    const replicas = followers + (one.leader ? 1 : 0);
    return [
      one.name, count(one.messages), size(one.bytes),
      one.max_bytes === null ? "–" : size(one.max_bytes),
      one.messages ? stamp(Date.parse(one.first_time)) : "–",
      plain(one.leader || "–"),
      [`${replicas} of ${one.wanted_replicas}`, replicas < one.wanted_replicas ? "bad" : ""],
    ];
  });
}

const charts = [new Chart("lines", rate), new Chart("bytes", size)];
let points = []; // of the last hour: what came in and what was written
let shown = null; // the newest view that has figures
let shownAt = 0; // milliseconds since the epoch

function show(view) {
  if (view.history) return void (points = view.history);
  if (view.point && !view.trouble) points = [...points, view.point].slice(-ENOUGH);
  const isAway = Boolean(view.trouble);
  document.body.classList.toggle("away", isAway);
  by("trouble").hidden = !isAway;
  const since = shownAt ? ` The figures are those of ${clock(shownAt)}.` : "";
  const reason = view.away ? view.trouble : `The broker does not answer: ${view.trouble}.`;
  by("trouble").textContent = isAway ? plain(reason) + since : "";
  if (!isAway && view.status) {
    [shown, shownAt] = [view, Date.now()];
    by("broker").textContent = `${plain(view.status.server)}, nats-server ${view.status.version}`;
  }
  draw();
}

function draw() {
  if (!shown || by("overview").hidden) return;
  const wrong = (shown.checks ?? []).filter((one) => one.status !== "OK");
  by("checks").replaceChildren(...wrong.map((one) =>
    make("li", `${one.check}: ${plain(one.text)}`, one.status.toLowerCase())));
  const hasFocus = by("cards").contains(document.activeElement);
  by("cards").replaceChildren(...cards(shown, points.at(-1) ?? shown.point));
  if (hasFocus) by("cards").querySelector("a")?.focus({ preventScroll: true });
  for (const one of charts) one.draw(points);
  by("partitions").replaceChildren(table(["Partition", "State", "Behind", "Oldest", "Lines/s in",
    "Lines/s written", "Offset", "Epoch", "Owner"], partitions(shown)));
  by("streams").replaceChildren(table(
    ["Stream", "Messages", "Size", "Limit", "Since", "Leader", "Replicas"], streams(shown.status)));
}

const views = { overview: { open: draw, close() {} }, hosts: new Hosts(), lines: new Lines() };

function open() {
  const [, name, detail, asked] = /^#?([^/?]*)\/?([^?]*)\??(.*)$/.exec(location.hash);
  const chosen = Object.hasOwn(views, name) ? name : "overview";
  for (const [one, view] of Object.entries(views)) {
    by(one).hidden = one !== chosen;
    if (one !== chosen) view.close();
  }
  for (const one of document.querySelectorAll("nav a"))
    one.ariaCurrent = one.hash === `#${chosen}` ? "page" : null;
  views[chosen].open(parameters(`host=${detail}`).get("host"), asked);
  // the browser's zone, UTC, and that of the link that was opened
  const options = [...new Set([LOCAL, "UTC", zone])].map((name) =>
    new Option(name === LOCAL ? `${name} (local)` : name, name, false, name === zone));
  by("zone").replaceChildren(...options);
}

on("zone", "change", () => {
  setZone(by("zone").value);
  if (by("lines").hidden) open();
  else views.lines.refresh();
});
addEventListener("hashchange", open);
addEventListener("keydown", (event) => {
  const chosen = { 1: "overview", 2: "hosts", 3: "lines" }[event.key];
  const isOurs = !(event.ctrlKey || event.metaKey || event.altKey);
  if (chosen && isOurs && !event.target.closest("input, select, dialog")) location.hash = chosen;
});
follow("events?", show);
open();
