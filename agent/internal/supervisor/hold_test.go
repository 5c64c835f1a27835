//go:build unix

package supervisor_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/harpcaller/harp/agent/internal/supervisor"
)

// chatter prints 20,000 lines of 100 bytes, and then makes a file.
const (
	chatter = `i=10000; while [ $i -lt 30000 ]; do
		echo $i--------------------------------------------------------------------------------------------; i=$((i+1)); done; : >"$1"`
	chatterLines = 20_000
)

// TestHeldBack checks that nothing is lost of a command that prints more than the spool
// takes, while somebody wants all of it.
func TestHeldBack(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		spec := shell(chatter, t.TempDir()+"/done")
		spec.MaxSpool = 64 << 10
		o.Hold = true
		h := start(t, o, spec)
		next := int64(0)
		end, err := h.Follow(t.Context(), 0, func(n int64, r supervisor.Record) error {
			if n != next || r.Truncated > 0 {
				return errors.New("there is a gap")
			}
			next++
			if n%100 == 99 {
				h.Keep(next)
			}
			return nil
		}, ignore)
		if err != nil || end.Records != chatterLines || end.Truncated > 0 || next != chatterLines {
			t.Errorf("after record %d: %+v, %v", next, end, err)
		}
	})
}

// TestNeverBlocked checks that a command goes on when nobody takes what it prints, and
// that what was dropped is said.
func TestNeverBlocked(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		g := newGate(t)
		done := t.TempDir() + "/done"
		spec := shell(chatter+`; read x <"$2"; echo end`, done, g.path)
		spec.MaxSpool = 64 << 10
		h := start(t, o, spec)
		g.open(t) // it came so far though nobody follows
		if _, err := os.Stat(done); err != nil {
			t.Error(err)
		}
		l := follow(t, h, 0)
		if int64(len(l.records)) != l.end.Records || l.end.Records >= chatterLines || l.end.Records == 0 {
			t.Errorf("%d records, the end is %+v", len(l.records), l.end)
		}
		sum := l.end.Truncated
		for _, r := range l.records {
			sum += r.Truncated + int64(len(r.Value)) + 1
		}
		first := l.records[0]
		if want := chatterLines*int64(len(first.Value)+1) + int64(len("end\n")); sum != want {
			t.Errorf("%d bytes are there or said to be dropped, of %d", sum, want)
		}
	})
}

// TestHoldEndsWithTheAgent checks that a command that is held back goes on when the agent
// that wanted it is gone.
func TestHoldEndsWithTheAgent(t *testing.T) {
	t.Parallel()
	o, g := supervised(t), newGate(t)
	spec := shell(chatter+`; read x <"$2"`, t.TempDir()+"/done", g.path)
	spec.MaxSpool = 64 << 10
	o.Hold = true
	h := start(t, o, spec)
	_ = h.Close() // nothing was written
	o.Hold = false
	g.open(t)
	if l := follow(t, attach(t, o, spec.Key), 0); !l.end.OK || l.end.Truncated == 0 {
		t.Errorf("the end is %+v", l.end)
	}
}

// TestTruncationIsSaidNext checks that room that comes back is used, and that the first
// record says what is missing before it.
func TestTruncationIsSaidNext(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		g := newGate(t)
		spec := shell(chatter+`; read x <"$2"; echo end`, t.TempDir()+"/done", g.path)
		spec.MaxSpool = 64 << 10
		h := start(t, o, spec)
		g.open(t)
		l := follow(t, h, 0)
		last := l.records[len(l.records)-1]
		if string(last.Value) != "end" || last.Truncated == 0 || l.end.Truncated != 0 {
			t.Errorf("the last record is %+v, the end %+v", last, l.end)
		}
	})
}

func TestFollowFromWhatIsKept(t *testing.T) {
	wirings(t, func(t *testing.T, o supervisor.Options) {
		h := start(t, o, shell("echo 0; echo 1"))
		follow(t, h, 0)
		h.Keep(2)
		_, err := h.Follow(t.Context(), 0, func(int64, supervisor.Record) error { return nil }, ignore)
		if err == nil || !strings.Contains(err.Error(), "kept elsewhere") {
			t.Errorf("following returned %v", err)
		}
		if l := follow(t, h, 2); l.end.Records != 2 {
			t.Errorf("the end is %+v", l.end)
		}
	})
}
