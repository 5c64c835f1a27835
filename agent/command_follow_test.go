package agent

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/life"
	"github.com/harpcaller/harp/agent/internal/supervisor"
)

// TestKeptElsewhere: an attempt that is behind what its supervisor has let go of passes
// over that, and one that has been asked from further on meanwhile goes on from there.
// Neither loses what the command prints.
func TestKeptElsewhere(t *testing.T) {
	for name, c := range map[string]struct{ kept, want int64 }{
		"it is behind":  {kept: 15, want: 15},
		"it is further": {kept: 5, want: 10},
	} {
		t.Run(name, func(t *testing.T) {
			s := &spooling{attempt: &attempt{agent: New(Config{}), life: life.Recall(life.Past{Phase: life.Running, Records: 10})}}
			if new(commandRun).recover(s.attempt, supervisor.End{}, &supervisor.KeptError{First: c.kept}) {
				t.Error("the end is taken for known")
			}
			if deaf, _ := s.dropped(); s.numbered() != c.want || deaf {
				t.Errorf("the next record is %d, want %d; deaf: %v", s.numbered(), c.want, deaf)
			}
		})
	}
}

// TestUnreadableOutput: what a command printed and cannot be read is said to have been dropped,
// once, and its end is not lost with it.
func TestUnreadableOutput(t *testing.T) {
	unreadable := errors.New("input/output error")
	for name, c := range map[string]struct {
		end   supervisor.End
		known bool
	}{
		"it has ended":       {supervisor.End{Time: 1}, true},
		"it went unseen":     {supervisor.End{Gone: true}, true},
		"its end is to come": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpooling(t)
				defer s.close()
				r := newCommandRun(t.Context(), false)
				if known := r.recover(s.attempt, c.end, unreadable); known != c.known || r.isUnread() == c.known {
					t.Errorf("the end is known: %t, it is awaited: %t", known, r.isUnread())
				}
				if deaf, missed := s.dropped(); !deaf || missed != 1 {
					t.Errorf("it hears no more: %t; %d bytes are missed", deaf, missed)
				}
				if c.known {
					return
				}
				begun := time.Now()
				again := r.recover(s.attempt, c.end, unreadable)
				if _, missed := s.dropped(); again || missed != 1 || time.Since(begun) != reachPause {
					t.Errorf("again after %v, and %d bytes are missed", time.Since(begun), missed)
				}
			})
		})
	}
}

// TestOutputThatCannotBeReadForAWhile: what a disk cannot read is read again each second, and nothing of what a command prints is said to have been
// dropped, unless that lasts, and nothing is read meanwhile.
func TestOutputThatCannotBeReadForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpooling(t)
		defer s.close()
		r, failed := newCommandRun(t.Context(), false), &supervisor.DamagedError{Path: "spool", Err: fmt.Errorf("read: %w", syscall.EIO)}
		for _, records := range []int64{0, 5} {
			s.apply(life.Event{Kind: life.SkipTo, Next: records})
			for n := range rereads {
				begun := time.Now()
				known := r.recover(s.attempt, supervisor.End{}, failed)
				if deaf, missed := s.dropped(); known || deaf || missed > 0 || r.isUnread() || time.Since(begun) != reachPause {
					t.Fatalf("at record %d, failure %d: read again after %v, the end is known: %t, it hears no more: %t; %d bytes are missed", records, n, time.Since(begun), known, deaf, missed)
				}
			}
		}
		r.recover(s.attempt, supervisor.End{}, failed)
		if deaf, missed := s.dropped(); !deaf || missed != 1 || !r.isUnread() {
			t.Errorf("it hears no more: %t; %d bytes are missed", deaf, missed)
		}
	})
}

// TestLostSupervisor: one that is lost is looked for again if the command goes on without the
// agent; else what it has left is ended. Nothing is taken for the end, or for dropped.
func TestLostSupervisor(t *testing.T) {
	for _, survives := range []bool{false, true} {
		t.Run(fmt.Sprintf("survives=%t", survives), func(t *testing.T) {
			s := newSpooling(t)
			defer s.close()
			r, h := newCommandRun(t.Context(), false), new(supervisor.Handle)
			if r.survives = survives; !survives {
				r.handle = h
			}
			r.kept = 5
			if r.recover(s.attempt, supervisor.End{}, fmt.Errorf("read: %w", supervisor.ErrLost)) || r.isUnread() {
				t.Errorf("the end is taken for known, or what it prints for lost: %+v", r)
			}
			if deaf, missed := s.dropped(); deaf || missed > 0 {
				t.Errorf("it hears no more: %t; %d bytes are missed", deaf, missed)
			}
			if orphaned := r.lost == h && r.handle == nil; orphaned == survives {
				t.Errorf("what it has left is ended: %t", orphaned)
			}
			if fresh := r.kept == 0 && len(r.progress) > 0; fresh != survives {
				t.Errorf("the next is told again what is kept: %t", fresh)
			}
		})
	}
}

// TestSupervisorThatIsLostAgainAndAgain: one that is lost as soon as it is found, as it is not understood, is looked for
// once a second, and at once when it has been there for longer.
func TestSupervisorThatIsLostAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpooling(t)
		defer s.close()
		r := newCommandRun(t.Context(), false)
		r.survives = true
		for n, c := range []struct{ after, pause time.Duration }{{0, 0}, {0, reachPause}, {0, reachPause}, {time.Minute, 0}} {
			time.Sleep(c.after)
			begun := time.Now()
			r.recover(s.attempt, supervisor.End{}, supervisor.ErrLost)
			if pause := time.Since(begun); pause != c.pause {
				t.Errorf("the %d. time it is looked for after %v, want %v", n, pause, c.pause)
			}
		}
	})
}

// A line of a command is text where it is UTF-8, and else bytes; one of JSON is its value where
// that is small enough, and else the text that it is.
func TestRecordOfALine(t *testing.T) {
	data, stdout := string(harp.KindData), string(harp.KindStdout)
	for line, c := range map[string]struct {
		kind, as string
		value    any
	}{
		"größer":               {stdout, stdout, "größer"},
		"gr\xf6\xdfer":         {stdout, stdout, []byte("gr\xf6\xdfer")},
		`{"n": 1}`:             {data, "", map[string]any{"n": 1}},
		`{"n": `:               {data, stdout, `{"n": `},
		`"longer than it may"`: {data, stdout, `"longer than it may"`},
	} {
		want, err := harp.NewValue(c.value)
		if err != nil {
			t.Fatal(err)
		}
		r, err := recordOf(supervisor.Record{Kind: c.kind, Value: []byte(line)}, 16)
		if err != nil || r.Kind != c.as || !bytes.Equal(r.Value, want) {
			t.Errorf("%q is a record of kind %q and value %s, %v", line, r.Kind, r.Value, err)
		}
	}
}
