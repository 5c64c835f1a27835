package agent

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Shares are within the budget, however many commands come and go, and there is one for
// each.
func TestBudget(t *testing.T) {
	const total, job, slots = 1 << 30, 64 << 20, 1024
	b := newBudget(total, job, slots)
	r := rand.New(rand.NewPCG(1, 2))
	var shares []int64
	if n := b.take(1000 << 10); n != 1000<<10 {
		t.Errorf("of an empty budget a command that wants little gets %d bytes", n)
	}
	b.give(1000 << 10)
	for step := range 20_000 {
		if len(shares) < slots && (r.IntN(2) == 0 || step < 2*slots) {
			shares = append(shares, b.take(math.MaxInt64))
		} else if len(shares) > 0 {
			i := r.IntN(len(shares))
			b.give(shares[i])
			shares[i] = shares[len(shares)-1]
			shares = shares[:len(shares)-1]
		}
		var sum int64
		for _, n := range shares {
			if n < total/(4*slots) || n > job/2 {
				t.Fatalf("a share of %d bytes", n)
			}
			sum += n
		}
		if sum > total/2 || sum != b.used {
			t.Fatalf("%d commands may keep %d bytes, and %d are noted", len(shares), sum, b.used)
		}
	}
	for _, n := range shares {
		b.give(n)
	}
	if b.used != 0 || b.running != 0 {
		t.Errorf("%d bytes of %d commands are left", b.used, b.running)
	}
	if n := b.take(math.MaxInt64); n != job/2 {
		t.Errorf("the first command gets %d bytes", n)
	}
}
