package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// printMeasurement prints what was measured.
func (c *cli) printMeasurement(m *measurement) error {
	if c.format == formatJSON {
		return c.printObject(m.object())
	}
	rows := [][2]string{
		{"calls", fmt.Sprintf("%d in %s, %d at a time", m.ended.n, threeDigits(m.took), m.flags.inFlight)},
		{"rate", perSecond(m.ended.n, m.took, "calls")},
	}
	if m.doc.Streams {
		rows = append(rows, [2]string{"records", fmt.Sprintf("%d, %s", m.records, perSecond(m.records, m.took, "records"))})
	}
	if m.failed > 0 {
		rows = append(rows, [2]string{"did not succeed", strconv.Itoa(m.failed)})
	}
	c.pairs(rows)
	if m.ended.n == 0 {
		return nil
	}
	c.say("")
	c.table([]string{"until", "p50", "p90", "p99", "max"}, [][]string{
		m.accepted.row("accepted"), m.ended.row("ended"),
	})
	c.say("")
	c.table([]string{"ended within", "calls", ""}, m.ended.histogram(c.room()))
	return nil
}

func (l *latencies) row(name string) []string {
	return []string{
		name, threeDigits(l.quantile(0.5)), threeDigits(l.quantile(0.9)), threeDigits(l.quantile(0.99)), threeDigits(l.most),
	}
}

// barLength is how many characters the longest bar has.
const barLength = 40

// histogram is a row for each bar, in as many columns as there is room for; 0: any number.
func (l *latencies) histogram(room int) (rows [][]string) {
	longest := uint64(barLength)
	if beside := len("ended within") + 2 + max(len("calls"), len(strconv.FormatUint(l.n, 10))) + 2; room > 0 {
		longest = uint64(min(barLength, max(room-beside, 4))) //nolint:gosec // from 4 to barLength
	}
	bars := l.bars()
	most := uint64(1)
	for _, b := range bars {
		most = max(most, b.n)
	}
	for _, b := range bars {
		length := (b.n*longest + most - 1) / most                                                                         // one for a single one
		rows = append(rows, []string{threeDigits(b.upTo), strconv.FormatUint(b.n, 10), strings.Repeat("#", int(length))}) //nolint:gosec // up to barLength
	}
	return rows
}

// object is what was measured, for programs. Times are in milliseconds.
func (m *measurement) object() object {
	bars := []object{}
	for _, b := range m.ended.bars() {
		bars = append(bars, object{{"up_to_ms", milliseconds(b.upTo)}, {"calls", b.n}})
	}
	return object{
		{"label", benchLabel + "=" + m.run},
		{"host", m.name},
		{"procedure", m.doc.Name},
		{"in_flight", m.flags.inFlight},
		{"seconds", m.took.Seconds()},
		{"calls", m.ended.n},
		{"calls_per_second", rate(m.ended.n, m.took)},
		{"records", m.records},
		{"records_per_second", rate(m.records, m.took)},
		{"not_succeeded", m.failed},
		{"cancelled", m.stopped},
		{"accepted", m.accepted.object()},
		{"ended", m.ended.object()},
		{"histogram", bars},
	}
}

func (l *latencies) object() object {
	return object{
		{"p50_ms", milliseconds(l.quantile(0.5))},
		{"p90_ms", milliseconds(l.quantile(0.9))},
		{"p99_ms", milliseconds(l.quantile(0.99))},
		{"max_ms", milliseconds(l.most)},
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// rate is how many there were a second; 0 if there was no time.
func rate(n uint64, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return float64(n) / took.Seconds()
}

func perSecond(n uint64, took time.Duration, what string) string {
	r := rate(n, took)
	digits := 0
	if r < 100 {
		digits = 1
	}
	return strconv.FormatFloat(r, 'f', digits, 64) + " " + what + "/s"
}

// threeDigits is a time for people, as exact as they need it.
func threeDigits(d time.Duration) string {
	unit := time.Nanosecond
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}
