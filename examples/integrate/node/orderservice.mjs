// An order service that does all that stockgate needs of one: Node 20, no packages. docs/integrate.md explains it piece by piece. It
// keeps orders in memory; where that matters, a comment says what a database does instead.
//
//   LISTEN=127.0.0.1:3000 SIGN_SECRET=… CONTROL_URL=http://127.0.0.1:9090 CONTROL_TOKEN=… node examples/integrate/node/orderservice.mjs
import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

const keys = { k1: process.env.SIGN_SECRET }; // secrets of upstreams.<name>.sign.keys by their id
const control = process.env.CONTROL_URL; // stockgate's control side
const token = process.env.CONTROL_TOKEN;
const orders = new Map(); // by reservation: a table with a unique column

// signed reports whether a gateway that knows one of the keys has sent exactly this request within the last five minutes.
function signed(req, body) {
  const part = Object.fromEntries((req.headers["stockgate-signature"] ?? "").split(",").map((f) => f.split("=", 2)));
  if (!(Math.abs(Date.now() / 1000 - Number(part.t)) <= 300)) return false; // a recorded request is worth nothing later
  if (!Object.hasOwn(keys, part.k)) return false;
  const text = ["v1", part.t, req.method, req.url, req.headers["stockgate-reservation"] ?? "", req.headers["stockgate-lines"] ?? "",
    req.headers["stockgate-forward-by"] ?? "", createHash("sha256").update(body).digest("hex")].join("\n");
  const wanted = createHmac("sha256", keys[part.k]).update(text).digest();
  const given = Buffer.from(part.v1 ?? "", "hex");
  return given.length === wanted.length && timingSafeEqual(given, wanted);
}

// place makes one order per reservation.
function place(req, res, body) {
  if (!signed(req, body)) return reject(res, 401, "not from the gateway");
  const reservation = req.headers["stockgate-reservation"];
  let o = orders.get(reservation); // from here to the new order nothing else runs: one transaction
  if (o?.state === "cancelled") return reject(res, 410, "this order is cancelled");
  if (!o) {
    if (!(Date.now() <= Number(req.headers["stockgate-forward-by"]))) return reject(res, 410, "too late");
    o = { order: `order-${orders.size + 1}`, reservation, lines: parseLines(req.headers["stockgate-lines"]), state: "open",
      closes: Number(req.headers["stockgate-expires"]) - margin, told: Promise.resolve() };
    orders.set(reservation, o); // INSERT … ON CONFLICT (reservation) DO NOTHING, then read the row that is there
  }
  answer(res, 201, o);
}

// margin is how much earlier than the gateway the shop lets go, so that clocks which differ a little do no harm.
const margin = 2000;

// reject says that there is no order and will be none, so that the units go back at once.
function reject(res, status, why) {
  res.setHeader("Stockgate-Outcome", "rejected");
  answer(res, status, { error: why });
}

// parseLines reads Stockgate-Lines: "sku-1";q=2, "sku-2";q=1
const parseLines = (header) => [...header.matchAll(/"([^"]+)";q=(\d+)/g)].map(([, sku, qty]) => ({ sku, qty: Number(qty) }));

// resolve answers what became of a reservation. An order that is not paid at its end is closed by the question itself.
function resolve(req, res, body, o) {
  if (!signed(req, body)) return answer(res, 401, {});
  if (!o) return answer(res, 404, {});
  closeIfDue(o);
  answer(res, 200, { state: o.state });
}

// closeIfDue closes an order that nobody has paid in time. After it, no payment is taken.
function closeIfDue(o) {
  // UPDATE … SET state = 'cancelled' WHERE state = 'open' AND closes <= now()
  if (o.state === "open" && Date.now() >= o.closes) o.state = "cancelled";
}

// pay takes the money only if the order can still be paid, and then confirms.
function pay(o) {
  closeIfDue(o);
  if (o.state === "open") {
    o.state = "paid"; // capture the payment after this is committed; if it was not, void it
    tell(o, "confirm", { order_ref: o.order });
  }
  return o.state === "paid";
}

// cancel cancels what is not paid.
function cancel(o) {
  if (o.state === "open") {
    o.state = "cancelled";
    tell(o, "release", { order_ref: o.order, reason: "cancelled", unless_paid: true });
  }
  return o.state === "cancelled";
}

// refund takes back a paid order, or so much of a line. op makes a part safe to repeat.
function refund(o, query) {
  if (o.state !== "paid") return false;
  if (query.has("sku")) {
    const lines = [{ sku: query.get("sku"), qty: Number(query.get("qty")) }];
    tell(o, "release", { lines, op: query.get("op"), reason: "refunded" });
  } else {
    o.state = "cancelled";
    tell(o, "release", { order_ref: o.order, reason: "refunded" });
  }
  return true;
}

// tell has stockgate told, after all that it was to be told of the order before: a refund must not overtake its confirm. In a real
// service a call is a row of an outbox, written in the transaction of the change, so that no crash in between loses it.
function tell(o, call, body) {
  o.told = o.told.then(() => until(o, call, body));
}

// until makes a call until it has its effect. All calls may be repeated.
async function until(o, call, body) {
  for (let wait = 100; ; wait = Math.min(2 * wait, 60_000)) {
    const { status, text } = await post(o.reservation, call, body).catch((err) => ({ status: 0, text: err }));
    if (status === 200) return;
    if (status === 409 && call === "confirm") { // RELEASED: the units are somebody else's
      Object.assign(o, { state: "cancelled", refund_due: true });
      return;
    }
    if (status >= 400 && status < 500 && status !== 429) { // a mistake of ours: repeating it does not help
      console.error(`${call} of ${o.order}: ${status} ${text}`);
      return;
    }
    await sleep(wait);
  }
}

// post makes one call of the control API.
async function post(reservation, call, body) {
  const resp = await fetch(`${control}/v1/reservations/${reservation}/${call}`, {
    method: "POST",
    headers: {
      Authorization: `Bearer ${token}`,
      "Stockgate-Actor": "orders", // who did it, in the ledger
      "Content-Type": "application/json",
    },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(15_000), // a call waits in the same queue as the buyers
  });
  return { status: resp.status, text: await resp.text() };
}

// extend gives the buyer more time. The new end counts only once stockgate has agreed.
async function extend(o, query) {
  const { status, text } = await post(o.reservation, "extend", { hold: query.get("hold") }).catch(() => ({ status: 0 }));
  if (status !== 200) return false;
  o.closes = Date.parse(JSON.parse(text).expires_at) - margin;
  return true;
}

// makeVoid ends an order for which there are no units, and lets its reservation have none any more: the request may still be on its way.
function makeVoid(req, res, body, reservation) {
  if (!signed(req, body)) return answer(res, 401, {});
  const o = orders.get(reservation) ?? { reservation }; // INSERT … ON CONFLICT (reservation) DO NOTHING, then lock the row that is there
  if (o.state === "paid") o.refund_due = true; // and tell the buyer
  o.state = "cancelled";
  orders.set(reservation, o);
  answer(res, 200, {});
}

function answer(res, status, body) {
  const { told, ...shown } = body;
  res.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(shown));
}

const steps = { pay, cancel, refund, extend };

async function serve(req, res) {
  const chunks = [];
  for await (const chunk of req) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  const url = new URL(req.url, "http://orders");
  const [, , reservation, step, call] = url.pathname.split("/");
  const isOrder = req.method === "POST" && ["/orders", "/checkout"].includes(url.pathname); // a cart is the same, with more lines
  if (isOrder) return place(req, res, body);
  if (req.method === "GET" && reservation === "by-reservation") return resolve(req, res, body, orders.get(step));
  if (req.method === "POST" && reservation === "by-reservation" && call === "void") return makeVoid(req, res, body, step);
  const o = orders.get(reservation);
  if (req.method !== "POST" || !o || !Object.hasOwn(steps, step)) return answer(res, 404, {});
  answer(res, (await steps[step](o, url.searchParams)) ? 200 : 409, o); // 409: it cannot be
}

const [host, port] = process.env.LISTEN.split(":");
const server = createServer((req, res) => serve(req, res).catch((err) => { console.error(err); res.destroy(); }));
server.keepAliveTimeout = 30_000; // longer than upstreams.<name>.idle_timeout
server.listen(Number(port), host);
