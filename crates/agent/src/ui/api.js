// Asking the agent: requests with a time limit, and its stream of events. Both can carry a token, which EventSource
// could not.

import { by } from "./dom.js";

const PATIENCE = 6000;
/** The agent sends something every ten seconds. */
const SILENCE = 25_000;

/** The agent did not answer at all. */
export class Lost extends Error {}
/** The agent answered, and said no. */
export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

function headers(more) {
  const token = sessionStorage.getItem("tenure-token");
  return token ? { ...more, authorization: `Bearer ${token}` } : more;
}

async function send(path, options) {
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(), options.patience ?? PATIENCE);
  try {
    const answer = await fetch(path, { ...options, headers: headers(options.headers ?? {}), signal: limit.signal });
    const text = await answer.text();
    if (answer.ok) return text ? JSON.parse(text) : null;
    throw await refusal(answer.status, text);
  } catch (error) {
    if (error instanceof Refused) throw error;
    throw new Lost(String(error.message ?? error));
  } finally {
    clearTimeout(timer);
  }
}

async function refusal(status, text) {
  if (status === 401) askForToken();
  try {
    return new Refused(status, JSON.parse(text).detail ?? text);
  } catch {
    return new Refused(status, text || `the agent answered ${status}`);
  }
}

export const get = (path) => send(path, { method: "GET" });

/** Asks the agent to act; it may take as long as a hand-over takes. */
export const act = (method, path, body) =>
  send(path, {
    method,
    patience: 60_000,
    headers: body ? { "content-type": "application/json" } : {},
    body: body && JSON.stringify(body),
  });

function askForToken() {
  const dialog = by("ask-token");
  if (dialog.open) return;
  by("token-form").onsubmit = (event) => {
    event.preventDefault();
    sessionStorage.setItem("tenure-token", by("token").value);
    dialog.close();
    location.reload();
  };
  dialog.showModal();
}

/** Reads events until the stream breaks; tells the id of each, so that the next stream can go on there. */
export async function stream(last, opened, heard) {
  const stop = new AbortController();
  let timer = setTimeout(() => stop.abort(), SILENCE);
  const more = last ? { "last-event-id": last } : {};
  // The first time it begins with what happened before the page was opened.
  const answer = await fetch(last ? "/v1/events" : "/v1/events?recent=500", { headers: headers(more), signal: stop.signal });
  if (!answer.ok) throw new Refused(answer.status, `no events: the agent answered ${answer.status}`);
  opened();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let unread = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(), SILENCE);
      unread += value;
      const parts = unread.split("\n\n");
      unread = parts.pop();
      for (const part of parts) read(part, heard);
    }
  } finally {
    clearTimeout(timer);
    stop.abort();
  }
}

function read(part, heard) {
  let id = "", data = "";
  for (const line of part.split("\n")) {
    if (line.startsWith("id:")) id = line.slice(3).trim();
    if (line.startsWith("data:")) data += line.slice(5);
  }
  if (!data) return;
  try {
    heard(id, JSON.parse(data));
  } catch (error) {
    console.warn("an event that cannot be read", error);
  }
}
