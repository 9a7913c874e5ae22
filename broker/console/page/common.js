// Shared by all views: elements, numbers for people, and text from hosts.

export const by = (id) => document.getElementById(id);

export function make(name, text, className) {
  const found = document.createElement(name);
  if (text !== undefined) found.textContent = text;
  if (className) found.className = className;
  return found;
}

// Text from a host: control characters, and marks that reverse text, as escapes.
export function plain(text) {
  return text.replace(
    /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]/gu,
    (one) => {
      const code = one.codePointAt(0);
      const byte = code >= 0xdc80 && code <= 0xdcff ? code - 0xdc00 : code;
      return byte < 0x100 ? `\\x${byte.toString(16).padStart(2, "0")}` : `\\u${code.toString(16)}`;
    },
  );
}

export function size(bytes) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (bytes < 1000)
      return `${bytes < 10 && unit !== "B" ? bytes.toFixed(1) : Math.round(bytes)} ${unit}`;
    bytes /= 1000;
  }
  return `${bytes.toFixed(1)} TB`;
}

// With commas; `toLocaleString` takes 20 ms the first time.
export const count = (number) => String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, ",");

// A number with what it counts: `1 host`, `2 hosts`.
export const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

export function duration(seconds) {
  if (seconds < 1) return "0 s";
  for (const [unit, length] of [
    ["d", 86400],
    ["h", 3600],
    ["min", 60],
  ]) {
    if (seconds >= length)
      return `${(seconds / length).toFixed(seconds < 10 * length ? 1 : 0)} ${unit}`;
  }
  return `${Math.round(seconds)} s`;
}

// Follow the server-sent events of an address until `close`; call `show` with each document.
// EventSource hides the text of a refusal, so it is fetched.
export function follow(address, show) {
  const source = new EventSource(address);
  source.onmessage = (event) => show(JSON.parse(event.data));
  source.onerror = async () => {
    const isRefused = source.readyState === EventSource.CLOSED;
    show({
      trouble: (isRefused && (await refusal(address))) || "the console does not answer",
      away: true,
    });
  };
  return source;
}

async function refusal(address) {
  const leave = new AbortController();
  try {
    const answer = await fetch(address, { signal: leave.signal });
    return answer.ok ? "" : (await answer.text()).trim();
  } catch {
    return "";
  } finally {
    leave.abort();
  }
}

// Copy text to the clipboard; return whether the browser allows it. A page of plain http has no
// `navigator.clipboard`.
export async function copy(text) {
  if (navigator.clipboard)
    return navigator.clipboard.writeText(text).then(
      () => true,
      () => false,
    );
  const area = make("textarea", text);
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  return isCopied;
}
