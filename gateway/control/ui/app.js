// The dashboard: reads /v1/status and /v1/stock again and again and shows them. No library, no other origin, nothing is changed.
// Everything that comes from the API is written with textContent, never as markup.

const REFRESH_MS = 2000;   // while the tab is seen
const TIMEOUT_MS = 5000;   // of one call
const PAGE = 100;          // SKUs on a page

const $ = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en-US");
const view = { after: "", next: "", skus: [], paused: false, seenAt: 0, timer: 0, round: 0 };

async function read(path) {
  const token = sessionStorage.getItem("stockgate-token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const reply = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
  const body = await reply.json().catch(() => ({}));
  if (!reply.ok) {
    const refusal = new Error(body.detail || `${reply.status} ${body.code || ""}`);
    refusal.status = reply.status;
    throw refusal;
  }
  return body;
}

async function refresh() {
  clearTimeout(view.timer);
  const round = ++view.round;
  const stock = `/v1/stock?limit=${PAGE}` + (view.after ? `&after=${encodeURIComponent(view.after)}` : "");
  const [status, list] = await Promise.allSettled([read("/v1/status"), read(stock)]);
  if (round !== view.round) return; // a later call (another page, a token) has taken over
  const failed = [status, list].filter((r) => r.status === "rejected").map((r) => r.reason);
  if (status.status === "fulfilled") showStatus(status.value);
  if (list.status === "fulfilled") showStock(list.value);
  showFault(failed);
  if (!failed.length) view.seenAt = Date.now();
  showFreshness();
  schedule();
}

function schedule() {
  clearTimeout(view.timer);
  if (!view.paused && !document.hidden && $("ask").hidden) view.timer = setTimeout(refresh, REFRESH_MS);
}

function showFault(failed) {
  const locked = failed.some((f) => f.status === 401);
  if (locked && $("ask").hidden) { $("ask").hidden = false; $("token").focus(); }
  if (!locked) $("ask").hidden = true;
  for (const id of ["tiles", "stock", "verdicts"]) $(id).hidden = locked;
  if (locked) $("sale").hidden = true;
  document.body.classList.toggle("stale", failed.some((f) => !f.status)); // the figures are those of the last answer
  const text = failed.length ? failed[0].message || String(failed[0]) : "";
  const asked = locked && !sessionStorage.getItem("stockgate-token"); // the form says it already
  const shown = !failed.length || asked ? "" : failed[0].status ? text : `The gateway does not answer (${text}).`;
  if ($("fault").textContent !== shown) $("fault").textContent = shown;
  $("fault").hidden = !shown;
}

function showFreshness() {
  const text = view.paused ? "Refresh is paused" : view.seenAt ? `Updated ${new Date(view.seenAt).toLocaleTimeString()}` : "";
  const line = $("freshness");
  line.setAttribute("aria-live", "off"); // told on pause only: a reader must not hear it every two seconds
  if (view.paused) line.setAttribute("aria-live", "polite");
  line.textContent = text;
}

function put(id, text, tone = "") {
  const node = $(id);
  node.textContent = text;
  node.classList.remove("good", "warn", "bad");
  if (tone) node.classList.add(tone);
}

function showStatus(s) {
  put("phase", s.waiting ? `${s.phase}: waiting for ${s.waiting}` : s.phase, s.phase === "ready" ? "good" : "warn");
  showRedis(s.redis || {});
  const db = s.database || {};
  put("database", db.reachable ? "reachable" : "unreachable", db.reachable ? "good" : "bad");
  put("database-hint", [db.driver, !db.reachable && db.seen_at ? `last seen ${new Date(db.seen_at).toLocaleTimeString()}` : ""].filter(Boolean).join(", "));
  put("replicas", number.format(s.live_replicas || 0));
  put("gateway", s.gateway ? `this is ${s.gateway}` : "");
  showQueues(s.queues || []);
  showUnresolved(s.unresolved || {});
  showClock(s.clock || {});
  showSale(s.sale || {});
  showInvariants(s.invariants || []);
  put("version", s.version ? `stockgate ${s.version}` : "");
  put("deployment", s.deployment ? `deployment ${s.deployment}` : "");
}

function showRedis(redis) {
  const tones = { closed: "good", "half-open": "warn", open: "bad" };
  put("breaker", redis.mode === "none" ? "no Redis" : redis.breaker || "–", tones[redis.breaker] || "");
  const parts = redis.partitions_total ? `, ${redis.partitions_open || 0} of ${redis.partitions_total} partitions` : "";
  const path = redis.mode === "none" || redis.breaker === "open" ? "orders go through the database" : "";
  put("breaker-hint", [redis.mode === "none" ? "" : (redis.mode || "") + parts, path].filter(Boolean).join(": "));
}

function showQueues(queues) {
  const waiting = queues.reduce((sum, q) => sum + q.depth, 0);
  const fullest = queues.reduce((most, q) => (q.limit && (!most || q.depth / q.limit > most.depth / most.limit) ? q : most), null);
  const share = fullest ? fullest.depth / fullest.limit : 0;
  put("queued", queues.length ? number.format(waiting) : "–", share > 0.9 ? "bad" : share > 0.5 ? "warn" : "");
  put("queued-hint", fullest ? `fullest: ${fullest.name}, ${number.format(fullest.depth)} of ${number.format(fullest.limit)}` : "");
}

// showUnresolved: what is in flight is among the unknown, so that a number alone is no alarm; an old one is.
function showUnresolved(u) {
  const old = (u.oldest_ms || 0) > 60000;
  const bad = u.stuck > 0 || u.surplus_dead > 0 || u.doubts > 0 || (u.distrusted || []).length > 0;
  put("unknown", u.counted_at ? number.format(u.unknown || 0) : "–", bad ? "bad" : old || u.surplus ? "warn" : "");
  put("unknown-hint", [u.oldest_ms ? `oldest ${duration(u.oldest_ms)}` : "", u.stuck ? `${number.format(u.stuck)} past hold_max` : "",
    u.surplus ? `${number.format(u.surplus)} surplus${u.surplus_dead ? `, ${number.format(u.surplus_dead)} of them given up` : ""}` : "",
    u.doubts ? `${number.format(u.doubts)} doubtful replicas` : "",
    (u.distrusted || []).length ? `resolve not believed: ${u.distrusted.join(", ")}` : ""].filter(Boolean).join(", "));
}

function duration(ms) {
  const s = Math.round(ms / 1000);
  return s < 120 ? `${s} s` : s < 7200 ? `${Math.round(s / 60)} min` : `${Math.round(s / 3600)} h`;
}

function showClock(c) {
  const known = Boolean(c.measured_at);
  put("clock", known ? `${c.offset_ms > 0 ? "+" : ""}${number.format(Math.round(c.offset_ms))} ms` : "–", known && Math.abs(c.offset_ms) > 1000 ? "warn" : "");
  put("clock-hint", known ? `the database's less this replica's, ± ${number.format(Math.ceil(c.uncertainty_ms))} ms` : "");
}

function showSale(sale) {
  const all = sale.activities || [];
  $("sale").hidden = !all.length;
  $("activities").replaceChildren(...all.map((a) => {
    const item = document.createElement("li");
    const name = document.createElement("b");
    name.textContent = a.name;
    const window = document.createElement("p");
    window.className = "hint";
    window.textContent = `${new Date(a.starts_at).toLocaleString()} – ${new Date(a.ends_at).toLocaleString()}`;
    item.append(tag(a.phase, a.phase === "open" ? "good" : ""), name, window);
    return item;
  }));
}

function showInvariants(all) {
  const broken = all.filter((i) => i.state === "broken").length;
  const held = all.filter((i) => i.state === "holds").length;
  put("verdict", broken ? `${broken} broken` : held ? "hold" : "unchecked", broken ? "bad" : held ? "good" : "");
  put("verdict-hint", all.length ? `${held} of ${all.length} hold` : "");
  $("no-invariants").hidden = all.length > 0;
  $("invariants").replaceChildren(...all.map(invariantItem));
}

function invariantItem(i) {
  const item = document.createElement("li");
  const tone = i.state === "holds" ? "good" : i.state === "broken" ? "bad" : "";
  const name = document.createElement("b");
  name.textContent = i.name;
  const detail = document.createElement("p");
  detail.className = "hint";
  detail.textContent = [i.violations ? `${number.format(i.violations)} violations` : "", i.detail || "",
    i.checked_at && i.state !== "unchecked" ? `checked ${new Date(i.checked_at).toLocaleTimeString()}` : ""].filter(Boolean).join(", ");
  item.append(tag(i.state, tone), name, i.title || "", detail);
  return item;
}

function tag(text, tone) {
  const node = document.createElement("span");
  node.className = `tag ${tone}`;
  node.textContent = text;
  return node;
}

function showStock(list) {
  view.skus = list.skus || [];
  view.next = list.next || "";
  $("first").disabled = !view.after;
  $("next").disabled = !view.next;
  showRows();
}

function showRows() {
  const wanted = $("filter").value.trim().toLowerCase();
  const shown = view.skus.filter((s) => s.sku.toLowerCase().includes(wanted));
  const rows = $("rows");
  const old = new Map([...rows.children].map((row) => [row.dataset.sku, row]));
  const fresh = shown.map((s) => fill(old.get(s.sku) || newRow(s.sku), s));
  if (fresh.length !== rows.children.length || fresh.some((row, i) => rows.children[i] !== row)) rows.replaceChildren(...fresh);
  $("empty").hidden = shown.length > 0;
  $("empty").textContent = view.skus.length ? "No SKU of this page matches." : "No stock yet. Put some in: stockgate stock set SKU UNITS";
  $("count").textContent = view.skus.length ? `${number.format(shown.length)} ${shown.length === 1 ? "SKU" : "SKUs"}${view.after ? ` after ${view.after}` : ""}` : "";
}

const COLUMNS = [
  (s) => s.available, (s) => s.granted, (s) => s.held, (s) => s.confirmed, (s) => s.stock_in + (s.changed || 0),
  (s) => (s.redis && s.redis.loaded && !s.redis.corrupt ? s.redis.free : null),
];

// newRow makes the cells of a SKU once; fill writes into them, so that selection and focus survive a refresh.
function newRow(sku) {
  const row = document.createElement("tr");
  row.dataset.sku = sku;
  const name = document.createElement("th");
  name.scope = "row";
  const share = document.createElement("td");
  share.className = "wide";
  share.append(newShare());
  row.append(name, share, ...COLUMNS.map(() => Object.assign(document.createElement("td"), { className: "num" })));
  return row;
}

function fill(row, s) {
  const [name, share, ...cells] = row.children;
  const tags = [];
  if (s.paused) tags.push(tag("paused", "warn"));
  else if (s.available + s.granted === 0) tags.push(tag("sold out", ""));
  if (s.consistency === "eventual") tags.push(tag("eventual", ""));
  if (s.doubtful) tags.push(tag(`${number.format(s.doubtful)} doubtful`, "bad"));
  if (s.corrupt) tags.push(tag("corrupt stock row", "bad"));
  if (s.redis && s.redis.corrupt) tags.push(tag("corrupt in Redis", "bad"));
  if (s.compensating) tags.push(tag(`${number.format(s.compensating)} compensating`, "bad"));
  name.replaceChildren(s.sku, ...tags);
  fillShare(share.firstChild, s);
  COLUMNS.forEach((value, i) => {
    const v = value(s);
    cells[i].textContent = v === null ? "–" : number.format(v);
    cells[i].classList.toggle("zero", !v);
  });
  return row;
}

const PARTS = ["available", "granted", "held", "confirmed"];
const SVG = "http://www.w3.org/2000/svg";

function newShare() {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "share");
  svg.setAttribute("viewBox", "0 0 100 10");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  for (const part of PARTS) {
    const rect = document.createElementNS(SVG, "rect");
    rect.setAttribute("class", `s-${part}`);
    rect.setAttribute("height", "10");
    svg.append(rect);
  }
  return svg;
}

function fillShare(svg, s) {
  const all = PARTS.reduce((sum, part) => sum + s[part], 0);
  let x = 0;
  PARTS.forEach((part, i) => {
    const width = all ? (100 * s[part]) / all : 0;
    svg.children[i].setAttribute("x", x);
    svg.children[i].setAttribute("width", width);
    x += width;
  });
  svg.setAttribute("aria-label", PARTS.filter((p) => s[p]).map((p) => `${Math.round((100 * s[p]) / all)} % ${p}`).join(", ") || "empty");
}

$("pause").addEventListener("click", () => {
  view.paused = !view.paused;
  $("pause").setAttribute("aria-pressed", String(view.paused));
  $("pause").textContent = view.paused ? "Resume refresh" : "Pause refresh";
  showFreshness();
  if (view.paused) clearTimeout(view.timer); else refresh();
});
$("filter").addEventListener("input", showRows);
$("first").addEventListener("click", () => { view.after = ""; refresh(); });
$("next").addEventListener("click", () => { view.after = view.next; refresh(); });
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("stockgate-token", $("token").value);
  $("token").value = "";
  refresh();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden && !view.paused) refresh(); else schedule(); });
refresh();
