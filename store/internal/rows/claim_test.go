package rows

import (
	"errors"
	"slices"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

func numbersOf(jobs []*store.Job) (numbers []uint64) {
	for _, j := range jobs {
		numbers = append(numbers, j.No)
	}
	return numbers
}

// wantJobs checks which jobs these are, by their numbers.
func wantJobs(t *testing.T, what string, got []*store.Job, want ...uint64) {
	t.Helper()
	has := numbersOf(got)
	if len(has) != len(want) {
		t.Fatalf("%s: jobs %v, want %v", what, has, want)
	}
	for n := range has {
		if has[n] != want[n] {
			t.Fatalf("%s: jobs %v, want %v", what, has, want)
		}
	}
}

// TestHostIsOfferedAgain has the job that a host was offered for lose its slot to another
// host, while a third job comes before the next that the first host has.
func TestHostIsOfferedAgain(t *testing.T) {
	s := opened(t, newTrial(), Options{})
	submitted(t, s, inQueue(call("a"), 0, 1), inQueue(call("b"), 0, 1), call("a"), call("b"))
	openGate(s, "a")
	openGate(s, "b")
	got, err := s.Claim(t.Context(), []string{"a", "b"}, 10, noon)
	if err != nil {
		t.Fatal(err)
	}
	wantJobs(t, "claimed", got, 1, 3, 4)
}

// TestLineIsFoundAgain passes over a line once for its host and once for its queue: when
// both have room its job starts.
func TestLineIsFoundAgain(t *testing.T) {
	s := opened(t, newTrial(), Options{})
	s.SetGate("a", store.Gate{Open: true, Most: 1})
	openGate(s, "b")
	onA := submitted(t, s, call("a"))[0]
	onB := submitted(t, s, inQueue(call("b"), 0, 1))[0]
	waits := submitted(t, s, inQueue(call("a"), 0, 1))[0]
	wantJobs(t, "by the queue's slot, the host being full", applied(t, s, about(onB, store.End))[0].Claimed)
	onB = submitted(t, s, inQueue(call("b"), 0, 1))[0]
	if onB.State != harp.StateSent || waits.State != harp.StateQueued {
		t.Fatalf("they are %s and %s", onB.State, waits.State)
	}
	wantJobs(t, "by the host's room, the queue being full", applied(t, s, about(onA, store.End))[0].Claimed)
	wantJobs(t, "by the queue's slot", applied(t, s, about(onB, store.End))[0].Claimed, waits.No)
}

// TestClaimUntilThereIsNoSpace checks that what is claimed is returned, and that there is more
// is said, when the space ends between two commits of a claim.
func TestClaimUntilThereIsNoSpace(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	calls := make([]store.Submission, maxClaims+1)
	for n := range calls {
		calls[n] = call("h")
	}
	for some := range slices.Chunk(calls, 100) {
		submitted(t, s, some...)
	}
	s.SetGate("h", store.Gate{Open: true, Most: len(calls)})
	e.onCommit = func([]Write) error {
		e.space = SpaceCritical
		return nil
	}
	got, err := s.Claim(t.Context(), []string{"h"}, len(calls), noon)
	if !errors.Is(err, harp.ErrNoSpace) || len(got) == 0 || len(got) > maxClaims {
		t.Fatalf("claimed %d, %v", len(got), err)
	}
	e.onCommit, e.space = nil, SpacePlenty
	rest, err := s.Claim(t.Context(), []string{"h"}, len(calls), noon)
	if err != nil || len(got)+len(rest) != len(calls) {
		t.Fatalf("claimed %d and then %d of %d, %v", len(got), len(rest), len(calls), err)
	}
}
