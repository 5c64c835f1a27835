package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/bench/internal/lab"
)

// TestLoop: four at a time of 10 ms each are 400 a second, of which the beginning is
// not counted.
func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Loop(t.Context(), Point{Work: 4, For: 2 * time.Second}, func(context.Context) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if s["rate"] < 395 || s["rate"] > 405 || s["p50"] != 10 || s["p99"] != 10 {
			t.Error(s)
		}
	})
}

// TestLoopFails: the first error ends all.
func TestLoopFails(t *testing.T) {
	want := errors.New("no")
	_, err := Loop(t.Context(), Point{Work: 4, For: time.Hour}, func(context.Context) error { return want })
	if !errors.Is(err, want) {
		t.Error(err)
	}
}

func TestQuantile(t *testing.T) {
	if got := Latencies([]float64{4, 1, 3, 2, 5}); got["p50"] != 3 || got["p90"] != 4.6 {
		t.Error(got)
	}
}

// script is subjects that note what is done to them.
type script struct{ did []string }

func (s *script) subject(name string, fails error) Subject {
	return Subject{Name: name, Setup: func(context.Context, *lab.Lab) (Rig, error) {
		s.did = append(s.did, "open "+name)
		return NewRig(func(_ context.Context, p Point) (Sample, error) {
			s.did = append(s.did, fmt.Sprint(name, p.Work))
			return Sample{"rate": 1}, fails
		}, func() error { s.did = append(s.did, "close "+name); return nil }), nil
	}}
}

func run(t *testing.T, w Workload) Result {
	t.Helper()
	p := Plan{Lab: &lab.Lab{}, Rounds: 2, For: time.Second, Log: io.Discard}
	r, err := p.Run(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestTurns: subjects take turns within each point; one that fails has no more.
func TestTurns(t *testing.T) {
	var s script
	broken := errors.New("broken")
	r := run(t, Workload{Points: []int{1, 2}, Subjects: []Subject{s.subject("a", nil), s.subject("b", broken)}})
	want := []string{"open a", "open b", "a1", "b1", "a1", "a2", "a2"}
	if !slices.Equal(s.did[:len(want)], want) || len(s.did) != len(want)+2 {
		t.Error(s.did)
	}
	if len(r.Subjects[0].Rounds[2]) != 2 || r.Subjects[1].Missing != "at 1: broken" {
		t.Errorf("%+v", r.Subjects)
	}
}

// TestAlone: a subject is gone before the next one is there.
func TestAlone(t *testing.T) {
	var s script
	run(t, Workload{Points: []int{1}, Rounds: 1, Alone: true, Subjects: []Subject{s.subject("a", nil), s.subject("b", nil)}})
	if want := []string{"open a", "a1", "close a", "open b", "b1", "close b"}; !slices.Equal(s.did, want) {
		t.Error(s.did)
	}
}

// TestBeside: subjects work at the same time.
func TestBeside(t *testing.T) {
	both := make(chan struct{})
	meet := func(name string, mine func()) Subject {
		return Subject{Name: name, Setup: func(context.Context, *lab.Lab) (Rig, error) {
			return NewRig(func(context.Context, Point) (Sample, error) { mine(); return Sample{"rate": 1}, nil }, func() error { return nil }), nil
		}}
	}
	r := run(t, Workload{Points: []int{1}, Rounds: 1, Beside: true, Subjects: []Subject{
		meet("a", func() { both <- struct{}{} }), meet("b", func() { <-both }),
	}})
	if len(r.Subjects[0].Rounds[1]) != 1 || len(r.Subjects[1].Rounds[1]) != 1 {
		t.Errorf("%+v", r.Subjects)
	}
}

// TestWarm: a warm-up is not in the result.
func TestWarm(t *testing.T) {
	var s script
	r := run(t, Workload{Points: []int{1}, Warm: true, Subjects: []Subject{s.subject("a", nil)}})
	if len(r.Subjects[0].Rounds[1]) != 2 || len(s.did) != 5 {
		t.Error(s.did, r.Subjects[0].Rounds)
	}
}
