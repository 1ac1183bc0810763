package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/stockgate/stockgate/bench/load"
)

// print writes the report for people.
func (r *report) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	r.Load.print(w)
	if r.Hotspot != nil {
		r.Hotspot.print(w)
	}
	if r.Fault != nil {
		r.Fault.print(w)
	}
	r.warn(w)
	_ = w.Flush()
	r.Verdict.print(out)
}

func (l *loadReport) print(w io.Writer) {
	kind := "closed loop: latency does not count the wait of those who could not send"
	if l.OpenLoop {
		kind = fmt.Sprintf("open loop at %g/s: latency counts from when a request was due", l.Rate)
	}
	fmt.Fprintf(w, "%s\n%s, %d connections, seed %d\n", l.URL, kind, l.Connections, l.Seed)
	fmt.Fprintf(w, "%d requests in %.1f s, %.0f answers/s\n\n", l.Sent, l.Elapsed, l.Throughput)
	fmt.Fprintf(w, "\trequests\t/s\tp50\tp90\tp99\tp99.9\tmax\t(ms)\n")
	for c := range load.Failed + 1 {
		class := l.Classes[c.String()]
		fmt.Fprintf(w, "%s\t%d\t%.0f%s\n", c, class.Count, class.PerSecond, class.Latency.columns())
	}
	fmt.Fprintf(w, "all\t%d\t%.0f%s\n", l.Sent, l.Throughput, l.Latency.columns())
	fmt.Fprintf(w, "from the send\t\t%s\n\n", l.Service.columns())
	fmt.Fprintf(w, "status\tcode\tsource\trequests\t\n")
	for _, o := range l.Outcomes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t\n", dash(o.Status), dash(o.Code), dash(o.Source), o.Count)
	}
	fmt.Fprintln(w)
}

// warn says what makes the numbers doubtful.
func (r *report) warn(w io.Writer) {
	l := &r.Load
	if r.Machine.LoadAverage > float64(r.Machine.CPUs) {
		fmt.Fprintf(w, "! this machine was busy before the run: load average %.1f on %d CPUs\n", r.Machine.LoadAverage, r.Machine.CPUs)
	}
	if l.Late*100 > l.Sent {
		fmt.Fprintf(w, "! %d of %d requests started more than 1 ms late (worst %s ms): all connections were busy, or this machine was\n",
			l.Late, l.Sent, millis(l.LateMost))
	}
	if l.Unsent > 0 {
		fmt.Fprintf(w, "! %d requests were due and never sent: the target is far too slow for this rate\n", l.Unsent)
	}
}

func (p percentiles) columns() string {
	return fmt.Sprintf("\t%s\t%s\t%s\t%s\t%s\t", millis(p.P50), millis(p.P90), millis(p.P99), millis(p.P999), millis(p.Max))
}

// millis is microseconds as milliseconds, with a dash where there is no number.
func millis(us int64) string {
	if us == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", float64(us)/1000)
}

func dash[T comparable](v T) string {
	var none T
	if v == none {
		return "–"
	}
	return fmt.Sprint(v)
}
