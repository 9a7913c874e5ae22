// Shared by all views: elements, numbers and times for people, and text from hosts.

const AWAY = "The console does not answer.";
const RETRY = 5000, LONGEST_SILENCE = 60_000; // milliseconds

export const by = (id) => document.getElementById(id);
export const on = (id, name, act) => by(id).addEventListener(name, act);

export function make(name, text, className) {
  const found = document.createElement(name);
  if (text !== undefined) found.textContent = text;
  if (className) found.className = className;
  return found;
}

export const link = (text, hash) => Object.assign(make("a", text), { href: hash });

function row(name, cells) {
  const found = make("tr");
  for (const one of cells) {
    const [content, className] = [one].flat(), cell = make(name, undefined, className);
    cell.append(content);
    if (name === "th") cell.scope = "col";
    found.append(cell);
  }
  return found;
}

// A cell is a text, a text with its class, or an element.
export function table(head, rows) {
  const found = make("table");
  if (head.length) found.createTHead().append(row("th", head));
  found.createTBody().append(...rows.map((cells) => row("td", cells)));
  return found;
}

// Text from a host: control characters, and marks that reverse text, as escapes; tabs stay.
export function plain(text) {
  return text.replace(
    /[\0-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]/gu,
    (one) => {
      const code = one.codePointAt(0);
      const byte = code >= 0xdc80 && code <= 0xdcff ? code - 0xdc00 : code;
      return byte < 0x100 ? `\\x${byte.toString(16).padStart(2, "0")}` : `\\u${code.toString(16)}`;
    },
  );
}

// A glob that matches a text alone; globs are separated by spaces, and have no lone surrogates.
export const glob = (text) => text.replace(/[[*?]/g, "[$&]").replace(/[\s\ud800-\udfff]/gu, "?");

// The parameters of a link, and their text. A plus is a plus, as chats decode what a link escapes.
export const parameters = (text) => new URLSearchParams(text.replaceAll("+", "%2B"));
export const query = (given) => String(new URLSearchParams(given)).replaceAll("+", "%20");

export function size(bytes) {
  const power = Math.min(4, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  const value = bytes / 1000 ** power;
  return `${value.toFixed(power && value < 10 ? 1 : 0)} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

// With commas; `toLocaleString` takes 20 ms the first time.
export const count = (number) => String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, ",");
export const rate = (number) => (number && number < 10 ? number.toFixed(1) : count(number));

// A number with what it counts: `1 host`, `2 hosts`.
export const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

export function duration(seconds) {
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const [unit, length] = units.find(([, length]) => seconds >= length) ?? units.at(-1);
  return `${(seconds / length).toFixed(seconds < 10 * length && length > 1 ? 1 : 0)} ${unit}`;
}

// The time zone in which times are shown and entered: the browser's, UTC, or that of a link.
export const LOCAL = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
let format; // of the chosen zone
export let zone;
export function setZone(name) {
  const style = { dateStyle: "short", timeStyle: "medium" }; // 2026-11-29 14:03:07
  try {
    [format, zone] = [new Intl.DateTimeFormat("sv", { ...style, timeZone: name }), name];
  } catch {} // a link may name a zone that this browser does not know
}
setZone(LOCAL);

// A date and time from milliseconds since the epoch; `clock` without the date if it is today's.
export const stamp = (time) => format.format(time);
export function clock(time) {
  const [date, found] = stamp(time).split(" ");
  return stamp(Date.now()).startsWith(date) ? found : `${date} ${found}`;
}

// As a search takes it: with the offset, as a clock that is set back shows an hour twice.
export function moment(time) {
  const local = stamp(time).replace(" ", "T");
  const minutes = Math.round((Date.parse(`${local}Z`) - time) / 60_000);
  const offset = new Date(60_000 * Math.abs(minutes)).toISOString().slice(11, 16);
  return `${local}${minutes < 0 ? "-" : "+"}${offset}`;
}

// Return the answer of an address; throws an error with the text of a refusal.
async function get(address) {
  const answer = await fetch(address).catch(() => null);
  if (answer?.ok) return answer;
  const isOurs = answer?.headers.get("Content-Type")?.startsWith("text/plain"); // not of a proxy
  const text = isOurs ? (await answer.text()).trim() : AWAY;
  throw Object.assign(new Error(text), { isFinal: answer?.status === 400 });
}
export const ask = async (address) => (await get(address)).json();

// Follow the server-sent events of an address until `close` or a final trouble; call `show` with
// each document. After an error connect again, and ask for what is newer than the last id. A hidden
// page that has an id keeps no connection, as a browser has six for all its pages.
export function follow(address, show) {
  let source, timer, trouble, last = "";
  const ended = new AbortController();
  const isUnused = () => document.hidden && last;
  const pause = () => (clearTimeout(timer), source.close());
  const close = () => (ended.abort(), pause());
  const openAfter = (wait) => (clearTimeout(timer), (timer = setTimeout(open, wait)));
  function open() {
    source?.close();
    const own = source = new EventSource(`${address}&after=${encodeURIComponent(last)}`);
    own.onmessage = ({ data, lastEventId }) => {
      const found = JSON.parse(data);
      [last, trouble] = [lastEventId, found.trouble];
      if (found.final) close();
      else if (isUnused()) pause();
      else if (last) openAfter(LONGEST_SILENCE);
      show(found);
    };
    own.onerror = async () => {
      const isRefused = own.readyState === EventSource.CLOSED;
      const answer = isRefused && (await get(own.url).catch((error) => error));
      answer.body?.cancel();
      if (own !== source || ended.signal.aborted) return;
      if (answer.isFinal) close();
      else if (isRefused && !isUnused()) openAfter(RETRY);
      show({ trouble: answer.message ?? trouble ?? AWAY, away: true, final: answer.isFinal });
    };
  }
  document.addEventListener("visibilitychange", () => {
    if (isUnused()) pause();
    else if (source.readyState === EventSource.CLOSED) open();
  }, { signal: ended.signal });
  open();
  return { close };
}

// Copy text to the clipboard; return what to say about it. A page of plain http has no
// `navigator.clipboard`.
export async function copy(text) {
  const refused = "the browser does not let this page copy";
  if (navigator.clipboard)
    return navigator.clipboard.writeText(text).then(() => "copied", () => refused);
  const area = make("textarea", text);
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  return isCopied ? "copied" : refused;
}
