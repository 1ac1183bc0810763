import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * An order service that does all that stockgate needs of one: Java 17, the JDK alone. docs/integrate.md explains it piece by piece. It
 * keeps orders in memory; where that matters, a comment says what a database does instead.
 *
 * <pre>LISTEN=127.0.0.1:3000 SIGN_SECRET=… CONTROL_URL=http://127.0.0.1:9090 CONTROL_TOKEN=… java examples/integrate/java/OrderService.java</pre>
 */
public final class OrderService {
    /** Secrets of upstreams.&lt;name&gt;.sign.keys by their id. */
    private final Map<String, byte[]> keys = Map.of("k1", System.getenv("SIGN_SECRET").getBytes(UTF_8));
    private final String control = System.getenv("CONTROL_URL"); // stockgate's control side
    private final String token = System.getenv("CONTROL_TOKEN");
    private final HttpClient client = HttpClient.newHttpClient();
    private final Map<String, Order> orders = new HashMap<>(); // by reservation: a table with a unique column

    /** One order of the shop. The service's lock guards it. */
    private static final class Order {
        String order, reservation, lines, state = "open"; // open | paid | cancelled
        Instant closes; // from then on it is not paid any more
        boolean refundDue;
        CompletableFuture<Void> told = CompletableFuture.completedFuture(null);

        String json() {
            return "{\"order\":\"%s\",\"reservation\":\"%s\",\"lines\":%s,\"state\":\"%s\",\"refund_due\":%b}"
                .formatted(order, reservation, lines, state, refundDue);
        }
    }

    public static void main(String[] args) throws IOException {
        String[] listen = System.getenv("LISTEN").split(":");
        HttpServer server = HttpServer.create(new InetSocketAddress(listen[0], Integer.parseInt(listen[1])), 0);
        server.createContext("/", new OrderService()::serve);
        server.setExecutor(Executors.newFixedThreadPool(16));
        server.start();
    }

    /** Reports whether a gateway that knows one of the keys has sent exactly this request within the last five minutes. */
    private boolean signed(HttpExchange e, byte[] body) throws GeneralSecurityException {
        Map<String, String> part = new HashMap<>();
        for (String field : header(e, "Stockgate-Signature").split(",")) {
            String[] pair = field.split("=", 2);
            part.put(pair[0], pair[pair.length - 1]);
        }
        byte[] secret = keys.get(part.getOrDefault("k", ""));
        String at = part.getOrDefault("t", ""), given = part.getOrDefault("v1", "");
        if (secret == null || !at.matches("\\d{1,12}") || !given.matches("[0-9a-f]{64}")) {
            return false;
        }
        if (Math.abs(Instant.now().getEpochSecond() - Long.parseLong(at)) > 300) {
            return false; // a recorded request is worth nothing later
        }
        String text = String.join("\n", "v1", at, e.getRequestMethod(), e.getRequestURI().toString(), header(e, "Stockgate-Reservation"),
            header(e, "Stockgate-Lines"), header(e, "Stockgate-Forward-By"),
            HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body)));
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(secret, "HmacSHA256"));
        return MessageDigest.isEqual(HexFormat.of().parseHex(given), mac.doFinal(text.getBytes(UTF_8)));
    }

    private static String header(HttpExchange e, String name) {
        String value = e.getRequestHeaders().getFirst(name);
        return value == null ? "" : value;
    }

    /** Makes one order per reservation. */
    private void place(HttpExchange e, byte[] body) throws IOException, GeneralSecurityException {
        if (!signed(e, body)) {
            reject(e, 401, "not from the gateway");
            return;
        }
        String reservation = header(e, "Stockgate-Reservation"), refused = null, made = null;
        synchronized (orders) { // from the look at the clock to the new order: one transaction
            Order o = orders.get(reservation);
            if (o != null && o.state.equals("cancelled")) {
                refused = "this order is cancelled";
            } else if (o == null && Instant.now().isAfter(unixMilli(header(e, "Stockgate-Forward-By")))) {
                refused = "too late";
            } else {
                if (o == null) {
                    o = new Order();
                    o.order = "order-" + (orders.size() + 1);
                    o.reservation = reservation;
                    o.lines = parseLines(header(e, "Stockgate-Lines"));
                    o.closes = unixMilli(header(e, "Stockgate-Expires")).minus(MARGIN);
                    orders.put(reservation, o); // INSERT … ON CONFLICT (reservation) DO NOTHING, then read the row that is there
                }
                made = o.json();
            }
        }
        if (refused != null) {
            reject(e, 410, refused);
        } else {
            answer(e, 201, made);
        }
    }

    /** How much earlier than the gateway the shop lets go, so that clocks which differ a little do no harm. */
    private static final Duration MARGIN = Duration.ofSeconds(2);

    /** Says that there is no order and will be none, so that the units go back at once. */
    private static void reject(HttpExchange e, int status, String why) throws IOException {
        e.getResponseHeaders().set("Stockgate-Outcome", "rejected");
        answer(e, status, "{\"error\":\"" + why + "\"}");
    }

    private static final Pattern LINE = Pattern.compile("\"([^\"]+)\";q=(\\d+)");

    /** Reads Stockgate-Lines, "sku-1";q=2, "sku-2";q=1, as JSON: a SKU has no byte that JSON would escape. */
    private static String parseLines(String header) {
        return LINE.matcher(header).results().map(m -> "{\"sku\":\"%s\",\"qty\":%s}".formatted(m.group(1), m.group(2)))
            .collect(Collectors.joining(",", "[", "]"));
    }

    private static Instant unixMilli(String header) {
        return Instant.ofEpochMilli(header.matches("\\d{1,18}") ? Long.parseLong(header) : 0); // absent: long ago
    }

    /** Answers what became of a reservation. An order that is not paid at its end is closed by the question itself. */
    private void resolve(HttpExchange e, byte[] body, Order o) throws IOException, GeneralSecurityException {
        if (!signed(e, body)) {
            answer(e, 401, "{}");
        } else if (o == null) {
            answer(e, 404, "{}");
        } else {
            String state;
            synchronized (orders) {
                closeIfDue(o);
                state = o.state;
            }
            answer(e, 200, "{\"state\":\"" + state + "\"}");
        }
    }

    /** Closes an order that nobody has paid in time. After it, no payment is taken. */
    private void closeIfDue(Order o) {
        if (o.state.equals("open") && !Instant.now().isBefore(o.closes)) {
            o.state = "cancelled"; // UPDATE … SET state = 'cancelled' WHERE state = 'open' AND closes <= now()
        }
    }

    /** Ends an order for which there are no units, and lets its reservation have none any more: the request may still be on its way. */
    private void makeVoid(HttpExchange e, byte[] body, String reservation) throws IOException, GeneralSecurityException {
        if (!signed(e, body)) {
            answer(e, 401, "{}");
            return;
        }
        synchronized (orders) {
            Order o = orders.computeIfAbsent(reservation, r -> new Order()); // INSERT … ON CONFLICT (reservation) DO NOTHING, then lock the row
            o.refundDue |= o.state.equals("paid"); // and tell the buyer
            o.state = "cancelled";
        }
        answer(e, 200, "{}");
    }

    /** Takes the money only if the order can still be paid, and then confirms. */
    private boolean pay(Order o) {
        closeIfDue(o);
        if (o.state.equals("open")) {
            o.state = "paid"; // capture the payment after this is committed; if it was not, void it
            tell(o, "confirm", "{\"order_ref\":\"" + o.order + "\"}");
        }
        return o.state.equals("paid");
    }

    /** Cancels what is not paid. */
    private boolean cancel(Order o) {
        if (o.state.equals("open")) {
            o.state = "cancelled";
            tell(o, "release", "{\"order_ref\":\"" + o.order + "\",\"reason\":\"cancelled\",\"unless_paid\":true}");
        }
        return o.state.equals("cancelled");
    }

    /** Takes back a paid order, or so much of a line. op makes a part safe to repeat. */
    private boolean refund(Order o, Map<String, String> query) {
        if (!o.state.equals("paid")) {
            return false;
        }
        if (query.containsKey("sku")) {
            tell(o, "release", "{\"lines\":[{\"sku\":\"%s\",\"qty\":%s}],\"op\":\"%s\",\"reason\":\"refunded\"}"
                .formatted(query.get("sku"), query.get("qty"), query.get("op")));
        } else {
            o.state = "cancelled";
            tell(o, "release", "{\"order_ref\":\"" + o.order + "\",\"reason\":\"refunded\"}");
        }
        return true;
    }

    /**
     * Has stockgate told, after all that it was to be told of the order before: a refund must not overtake its confirm. In a real service a
     * call is a row of an outbox, written in the transaction of the change, so that no crash in between loses it.
     */
    private void tell(Order o, String call, String body) {
        o.told = o.told.thenRunAsync(() -> until(o, call, body));
    }

    /** Makes a call until it has its effect. All calls may be repeated. */
    private void until(Order o, String call, String body) {
        for (long wait = 100; ; wait = Math.min(2 * wait, 60_000)) {
            try {
                HttpResponse<String> r = post(o.reservation, call, body);
                int status = r.statusCode();
                if (status == 200) {
                    return;
                }
                if (status == 409 && call.equals("confirm")) { // RELEASED: the units are somebody else's
                    synchronized (orders) {
                        o.state = "cancelled";
                        o.refundDue = true;
                    }
                    return;
                }
                if (status < 500 && status != 429) { // a mistake of ours: repeating it does not help
                    System.err.println(call + " of " + o.order + ": " + status + " " + r.body());
                    return;
                }
            } catch (IOException lost) { // it may or may not have had its effect
            }
            pause(wait);
        }
    }

    /** Makes one call of the control API. */
    private HttpResponse<String> post(String reservation, String call, String body) throws IOException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(control + "/v1/reservations/" + reservation + "/" + call))
            .timeout(Duration.ofSeconds(15)) // a call waits in the same queue as the buyers
            .header("Authorization", "Bearer " + token)
            .header("Stockgate-Actor", "orders") // who did it, in the ledger
            .header("Content-Type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString(body))
            .build();
        try {
            return client.send(request, HttpResponse.BodyHandlers.ofString());
        } catch (InterruptedException stopped) {
            throw new IOException(stopped);
        }
    }

    private static final Pattern EXPIRES = Pattern.compile("\"expires_at\":\"([^\"]+)\"");

    /** Gives the buyer more time. The new end counts only once stockgate has agreed. */
    private boolean extend(Order o, String hold) throws IOException {
        HttpResponse<String> r = post(o.reservation, "extend", "{\"hold\":\"" + hold + "\"}");
        var expires = EXPIRES.matcher(r.body());
        if (r.statusCode() != 200 || !expires.find()) {
            return false;
        }
        synchronized (orders) {
            o.closes = Instant.parse(expires.group(1)).minus(MARGIN);
        }
        return true;
    }

    private void serve(HttpExchange e) throws IOException {
        try (e) {
            dispatch(e, e.getRequestBody().readAllBytes());
        } catch (GeneralSecurityException broken) {
            throw new IOException(broken);
        }
    }

    private void dispatch(HttpExchange e, byte[] body) throws IOException, GeneralSecurityException {
        String method = e.getRequestMethod();
        String[] path = e.getRequestURI().getPath().split("/"); // "", "orders", reservation, step
        if (method.equals("POST") && path.length == 2 && (path[1].equals("orders") || path[1].equals("checkout"))) {
            place(e, body); // a cart is the same, with more lines
        } else if (method.equals("GET") && path.length == 4 && path[2].equals("by-reservation")) {
            resolve(e, body, find(path[3]));
        } else if (method.equals("POST") && path.length == 5 && path[2].equals("by-reservation") && path[4].equals("void")) {
            makeVoid(e, body, path[3]);
        } else if (method.equals("POST") && path.length == 4 && find(path[2]) != null) {
            step(e, find(path[2]), path[3]);
        } else {
            answer(e, 404, "{}");
        }
    }

    private Order find(String reservation) {
        synchronized (orders) {
            return orders.get(reservation);
        }
    }

    private void step(HttpExchange e, Order o, String step) throws IOException {
        Map<String, String> query = query(e);
        if (!query.values().stream().allMatch(v -> v.matches("[A-Za-z0-9._:-]{1,128}"))) { // what is put into JSON as it is
            answer(e, 400, "{}");
            return;
        }
        boolean done = step.equals("extend") && extend(o, query.get("hold")); // it asks the gateway: not under the lock
        String json;
        synchronized (orders) {
            done = switch (step) {
                case "pay" -> pay(o);
                case "cancel" -> cancel(o);
                case "refund" -> refund(o, query);
                default -> done;
            };
            json = o.json();
        }
        answer(e, done ? 200 : 409, json); // 409: it cannot be
    }

    private static Map<String, String> query(HttpExchange e) {
        Map<String, String> values = new HashMap<>();
        String query = e.getRequestURI().getQuery();
        for (String field : query == null ? new String[0] : query.split("&")) {
            String[] pair = field.split("=", 2);
            values.put(pair[0], pair[pair.length - 1]);
        }
        return values;
    }

    private static void answer(HttpExchange e, int status, String json) throws IOException {
        byte[] body = json.getBytes(UTF_8);
        e.getResponseHeaders().set("Content-Type", "application/json");
        e.sendResponseHeaders(status, body.length);
        e.getResponseBody().write(body);
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }
}
