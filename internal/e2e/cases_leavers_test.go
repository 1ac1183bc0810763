package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/orderservice"
)

// C085: buyers who leave while Redis takes its time hold units no longer than the hold; who only closed their sending side hear what became
// of their order; whoever comes back with the same request id hears it, too; and in the end everything is sold to those who stayed.
func TestC085_WhoLeavesHoldsNothingForLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withProxies, withUpstream(`timeout: 1s, resolve: "/orders/by-reservation/{reservation}"`), func(w *world) {
		w.hold, w.orderDelay = "5s", "1s"
		w.closes = func(orderservice.Order) bool { return true } // nobody pays
	})
	w.redisKeys = fmt.Sprintf("mode: standalone, addresses: [%q], timeout: 1900ms", w.redisAddr())
	g := w.gateway()
	g.awaitRedis()
	const units, leavers = 100, 400
	g.setStock("s", units)
	w.toRedis.Delay(0, 300*time.Millisecond)
	statuses := g.sendAndLeave(t, leavers)
	w.toRedis.Delay(0, 0)

	var replies []told
	wins := 0
	for i := range leavers {
		again := g.buy(want{sku: "s", user: leaver(i), key: leaver(i)})
		replies = append(replies, again)
		if again.Won() {
			wins++
		}
		if statuses[i] == http.StatusCreated && !again.Won() {
			t.Errorf("leaver %d was told 201 and then %s", i, again)
		}
	}
	if wins == 0 || wins > units {
		t.Errorf("%d leavers have an order, there were %d units", wins, units)
	}
	w.eventually("the leavers' units are back", func() string {
		if left := g.stock("s"); left.Available != units || left.Held != 0 {
			return fmt.Sprintf("%+v", left)
		}
		return ""
	})
	bought := w.sale(distinct("s", "stays", units), 16, nil)
	requireTally(t, bought, map[string]int{"201 ": units})
	w.requireInvariants(t, append(replies, bought...), "s")
}

func leaver(i int) string { return fmt.Sprint("leaver-", i) }

// sendAndLeave sends n orders on connections of their own. Every second client resets its connection at once, the others close their
// sending side and read what they are told: the status, by client.
func (g *gateway) sendAndLeave(t *testing.T, n int) []int {
	statuses := make([]int, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			c, err := net.Dial("tcp", strings.TrimPrefix(g.public, "http://"))
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			body := fmt.Sprintf(`{"sku":"s","qty":1,"user":%q}`, leaver(i))
			if _, err := fmt.Fprintf(c, "POST /orders HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nIdempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s",
				leaver(i), len(body), body); err != nil {
				t.Error(err)
				return
			}
			if i%2 == 0 {
				_ = c.(*net.TCPConn).SetLinger(0) // close resets the connection
				return
			}
			_ = c.(*net.TCPConn).CloseWrite()
			_ = c.SetReadDeadline(time.Now().Add(patience))
			resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodPost})
			if err != nil {
				t.Errorf("leaver %d: %v", i, err)
				return
			}
			statuses[i] = resp.StatusCode
		})
	}
	all.Wait()
	return statuses
}
