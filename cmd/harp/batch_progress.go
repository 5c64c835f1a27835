package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/harpcaller/harp"
)

const (
	repaintEvery = 100 * time.Millisecond // on a terminal
	tellEvery    = 10 * time.Second       // elsewhere
)

// progress tells on stderr how far a batch is: on a terminal in a line that is repainted, elsewhere in
// a line each 10 s.
type progress struct {
	cli    *cli
	begun  time.Time
	since  time.Duration // behind begun: how fast the batch goes is measured from then on
	before int           // members that had ended by then
	ended  int           // that have ended, as far as was told
	at     time.Duration // behind begun: when so many had
	drawn  bool          // there is a line on the terminal
	shown  string        // in it
	told   time.Time     // when the last line was told elsewhere
}

func newProgress(c *cli, s harp.BatchStatus) *progress {
	now := time.Now()
	p := &progress{cli: c, begun: now, told: now}
	p.measureAnew(s, 0)
	return p
}

// measureAnew has it measured from now on how fast the batch goes, which has stood still.
func (p *progress) measureAnew(s harp.BatchStatus, took time.Duration) {
	p.since, p.before = took, endedMembers(s)
	p.at, p.ended = took, p.before
}

// clear takes the line off the terminal, so that something else can be printed.
func (p *progress) clear() {
	if p.drawn {
		p.write(overwrite)
		p.drawn = false
	}
}

// show tells how far the batch is.
func (p *progress) show(s harp.BatchStatus) {
	now := time.Now()
	switch {
	case p.cli.quiet:
	case p.cli.errTerminal:
		line := p.line(s, now)
		if columns, _ := p.cli.size(); columns > 0 {
			line = text.Trim(line, columns-1)
		}
		if !p.drawn || line != p.shown {
			p.write(overwrite + line)
			p.drawn, p.shown = true, line
		}
	case now.Sub(p.told) >= tellEvery:
		p.told = now
		p.cli.notice("%s", p.line(s, now))
	}
}

func (p *progress) write(line string) {
	io.WriteString(p.cli.stderr, line) //nolint:errcheck // there is nowhere to say it
}

// line is how far the batch is: ok 397 failed 3 running 50 unknown 1 waiting 60, 00:14, ~4s left.
func (p *progress) line(s harp.BatchStatus, now time.Time) string {
	parts := []string{memberText(s)}
	if s.State == harp.BatchPaused || s.State == harp.BatchCancelling {
		parts = append(parts, batchStateText(s))
	}
	if s.Waves > 1 {
		parts = append(parts, fmt.Sprintf("wave %d of %d", s.Wave, s.Waves))
	}
	took := now.Sub(p.begun)
	parts = append(parts, fmt.Sprintf("%02d:%02d", int(took.Minutes()), int(took.Seconds())%60))
	if left := p.left(s, took); left > 0 {
		parts = append(parts, "~"+left.String()+" left")
	}
	return strings.Join(parts, ", ")
}

// left is how long it takes until the batch has ended, if it goes on as it went until a member ended last; 0: that cannot be said, as
// of one that takes longer than that, or waits for nothing but silent hosts.
func (p *progress) left(s harp.BatchStatus, took time.Duration) time.Duration {
	if s.State != harp.BatchRunning {
		p.measureAnew(s, took)
		return 0
	}
	if ended := endedMembers(s); ended != p.ended {
		p.ended, p.at = ended, took
	}
	done := p.ended - p.before
	if done <= 0 || runningMembers(s)+s.Counts[harp.StateQueued] == 0 {
		return 0
	}
	left := (p.at-p.since)/time.Duration(done)*time.Duration(s.Hosts-p.ended) - (took - p.at)
	return max(0, left.Round(time.Second))
}

// memberText says how many members of a batch are how far.
func memberText(s harp.BatchStatus) string {
	words := []string{fmt.Sprint("ok ", s.Counts[harp.StateSucceeded])}
	for _, part := range []struct {
		name string
		n    int
	}{
		{"failed", countIn(s, failedStates)},
		{"cancelled", s.Counts[harp.StateCancelled]},
		{"skipped", skippedMembers(s)},
		{"running", runningMembers(s)},
		{"unknown", s.Counts[harp.StateUnknown]},
		{"waiting", s.Counts[harp.StateQueued]},
	} {
		if part.n > 0 {
			words = append(words, fmt.Sprint(part.name, " ", part.n))
		}
	}
	return strings.Join(words, " ")
}

// The states of members that count as failed, and of those that run or may.
var (
	failedStates = []harp.State{harp.StateFailed, harp.StateTimedOut, harp.StateLost, harp.StateRejected, harp.StateExpired}
	activeStates = []harp.State{harp.StateSent, harp.StateRunning, harp.StateCancelling, harp.StateUnknown}
)

func countIn(s harp.BatchStatus, states []harp.State) (n int) {
	for _, state := range states {
		n += s.Counts[state]
	}
	return n
}

// runningMembers is how many members are under way, as far as is known.
func runningMembers(s harp.BatchStatus) int {
	return countIn(s, activeStates) - s.Counts[harp.StateUnknown]
}

// skippedMembers is how many members were left out.
func skippedMembers(s harp.BatchStatus) (n int) {
	for _, skipped := range s.Skipped {
		n += skipped
	}
	return n
}

// endedMembers is how many members have ended or were left out.
func endedMembers(s harp.BatchStatus) int {
	return s.Hosts - countIn(s, activeStates) - s.Counts[harp.StateQueued]
}
