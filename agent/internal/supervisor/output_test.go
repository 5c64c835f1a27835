package supervisor

import (
	"testing"
	"time"
)

// TestClocks checks that the time in which a command is held back is none of its silence.
func TestClocks(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var p pressure
	var q quiet
	q.heard(at(0), p.total(at(0)))
	p.begin(at(2))
	p.begin(at(3)) // the other stream
	if got := q.since(at(10), p.total(at(10))); got != 2*time.Second {
		t.Errorf("silent for %v while it is held back", got)
	}
	p.finish(at(12))
	p.finish(at(13))
	if got := q.since(at(15), p.total(at(15))); got != 4*time.Second {
		t.Errorf("silent for %v after it was held back", got)
	}
	q.heard(at(16), p.total(at(16)))
	if got := q.since(at(19), p.total(at(19))); got != 3*time.Second {
		t.Errorf("silent for %v after it was heard", got)
	}
}
