// Draws what /metrics streams. Rates come from differences of totals, so they are as quick as the events.

const POINTS = 60;
const PATIENCE_MS = 5_000;
const WIDTH = 120, HEIGHT = 40;

const byId = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

const bytes = (value) => {
  if (value === null) return "–";
  const units = ["B", "KiB", "MiB", "GiB"];
  const step = value < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(value) / 10));
  return `${short.format(value / 1024 ** step)} ${units[step]}`;
};
const milliseconds = (value) => (value === null ? "–" : `${short.format(value)} ms`);
const rate = (name) => (now, before) =>
  before ? Math.max(0, (name(now) - name(before)) / ((now.time_ms - before.time_ms) / 1000)) : 0;

const producer = (event, name) => event.metrics["producer-metrics"]?.[name] ?? null;
const sent = (event) => producer(event, "record-send-total") ?? 0;
const used = (event) => (producer(event, "buffer-total-bytes") ?? 0) - (producer(event, "buffer-available-bytes") ?? 0);

// id, title, the value that is drawn, how it is written, and what stands below it.
const FIGURES = [
  ["sent", "Records sent a second", rate(sent), whole.format, (event) => `${whole.format(sent(event))} in all`],
  ["acked", "Acknowledged a second", rate((event) => event.outcomes.acked ?? 0), whole.format,
    (event) => `${whole.format(event.outcomes.acked ?? 0)} in all`],
  ["latency", "Request latency, mean", (event) => producer(event, "request-latency-avg"), milliseconds,
    (event) => `longest ${milliseconds(producer(event, "request-latency-max"))}`],
  ["batch", "Batch size, mean", (event) => producer(event, "batch-size-avg"), bytes,
    (event) => `${short.format(producer(event, "records-per-request-avg") ?? 0)} records a request`],
  ["buffer", "Buffer used", used, bytes,
    (event) => `of ${bytes(producer(event, "buffer-total-bytes"))}, ${event.health.waiting} calls wait`],
  ["queue", "Wait in the buffer, mean", (event) => producer(event, "record-queue-time-avg"), milliseconds,
    (event) => `longest ${milliseconds(producer(event, "record-queue-time-max"))}`],
  ["flight", "Requests in flight", (event) => producer(event, "requests-in-flight"), (value) => whole.format(value ?? 0),
    (event) => `connections: ${producer(event, "connection-count") ?? 0}`],
  ["failed", "Failed records", (event) => event.outcomes.failed ?? 0, whole.format,
    (event) => `${whole.format(producer(event, "record-retry-total") ?? 0)} sent again`],
];

class Figure {
  constructor([id, title, measure, format, note]) {
    Object.assign(this, { title, measure, format, note, points: [] });
    this.root = document.createElement("article");
    this.root.className = "figure";
    this.root.id = id;
    this.root.innerHTML = `<h2></h2><p class="value">–</p><p class="note">&nbsp;</p>
      <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img"><path/><polyline/></svg>`;
    this.root.querySelector("h2").textContent = title;
    byId("figures").append(this.root);
  }

  show(event, before) {
    const value = this.measure(event, before);
    this.points = [...this.points, value ?? 0].slice(-POINTS);
    this.root.querySelector(".value").textContent = this.format(value);
    this.root.querySelector(".note").textContent = this.note(event);
    this.draw();
  }

  draw() {
    const most = Math.max(...this.points);
    const at = (value, index) => {
      const x = WIDTH - (this.points.length - 1 - index) * (WIDTH / (POINTS - 1));
      return `${x.toFixed(2)},${(HEIGHT - 1 - (most ? value / most : 0) * (HEIGHT - 4)).toFixed(2)}`;
    };
    const line = this.points.map(at);
    this.root.querySelector("polyline").setAttribute("points", line.join(" "));
    const start = line[0].split(",")[0];
    this.root.querySelector("path").setAttribute("d", `M${start},${HEIGHT} L${line.join(" L")} L${WIDTH},${HEIGHT} Z`);
    const label = `${this.title}: now ${this.format(this.points.at(-1))}, at most ${this.format(most)} in this picture`;
    this.root.querySelector("svg").setAttribute("aria-label", label);
  }
}

function state(element, text, kind) {
  if (element.textContent !== text) element.textContent = text; // told to screen readers only when it changes
  element.className = `state ${kind}`;
}

function showHealth({ state: name, ready, reason }) {
  state(byId("health"), ready ? "ready" : `not ready (${name})`, ready ? "good" : "bad");
  byId("reason").textContent = reason;
  byId("reason").hidden = !reason;
}

function showBrokers(nodes) {
  // Below zero are the connections to bootstrap_servers, before it is known which brokers those are.
  const known = Object.entries(nodes ?? {}).filter(([name]) => !name.startsWith("node--"));
  const rows = known.map(([name, node]) => {
    const row = document.createElement("tr");
    row.append(...[
      name.replace("node-", ""), short.format(node["request-rate"]), milliseconds(node["request-latency-avg"]),
      milliseconds(node["request-latency-max"]), `${bytes(node["outgoing-byte-rate"])}`, whole.format(node["request-total"]),
    ].map((text) => Object.assign(document.createElement("td"), { textContent: text })));
    return row;
  });
  if (rows.length) byId("brokers").replaceChildren(...rows);
}

// --- the stream -------------------------------------------------------------------------------------------------------

const figures = FIGURES.map((figure) => new Figure(figure));
let before = null;
let silence;

function live(event) {
  clearTimeout(silence);
  silence = setTimeout(() => interrupted(`no news for ${PATIENCE_MS / 1000} s`), PATIENCE_MS);
  document.body.classList.remove("stale");
  state(byId("stream"), "live", "good");
  showHealth(event.health);
  if (before && sent(event) < sent(before)) before = null; // another process answers: its totals begin at 0
  for (const figure of figures) figure.show(event, before);
  showBrokers(event.metrics["producer-node-metrics"]);
  before = event;
}

function interrupted(text) {
  clearTimeout(silence);
  document.body.classList.add("stale");
  state(byId("stream"), text, "bad");
}

function connect() {
  const source = new EventSource("metrics");
  source.onmessage = (message) => live(JSON.parse(message.data));
  source.onerror = () => {
    interrupted("interrupted, connecting again");
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 2_000); // the browser has given up
  };
  addEventListener("pagehide", () => source.close(), { once: true });
}

// --- the buttons ------------------------------------------------------------------------------------------------------

async function publish(path, told) {
  let text;
  try {
    const answer = await fetch(path, { method: "POST" });
    const body = await answer.json();
    text = answer.ok ? told(body) : `refused: ${body.detail?.error ?? answer.status}`;
  } catch (error) {
    text = `not sent: ${error.message}`;
  }
  byId("answer").textContent = text;
}

byId("publish-events").onclick = () => publish("events?count=1000", () => "1,000 events are in the buffer or further");
byId("publish-order").onclick = () =>
  publish("orders?item=tea", ({ partition, offset }) => `acknowledged: partition ${partition}, offset ${offset}`);

connect();
