package schedule

import (
	"slices"
	"testing"

	"github.com/google/uuid"
)

// TestFirstNames checks that the first of many jobs are named, whose order is not known, without putting all of
// them into one: the store waits meanwhile.
func TestFirstNames(t *testing.T) {
	jobs := map[*Job]struct{}{}
	var want []string
	for n := range 5000 {
		e := &Job{No: uint64(n), ID: ID{byte(n >> 8), byte(n)}}
		jobs[e] = struct{}{}
		if n < namedJobs {
			want = append(want, uuid.UUID(e.ID).String())
		}
		if n >= 20 && n%1000 > 0 {
			continue
		}
		if got := firstNames(jobs); !slices.Equal(got, want) {
			t.Fatalf("of %d jobs the first are %v, want %v", n+1, got, want)
		}
	}
	if n := testing.AllocsPerRun(10, func() { firstNames(jobs) }); n > 2*namedJobs {
		t.Errorf("naming them takes %.0f allocations", n)
	}
}
