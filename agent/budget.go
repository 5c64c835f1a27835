package agent

import "sync"

// minShare is the least that a command may keep: a few lines.
const minShare = 4 << 10

// budget shares out how many bytes of output commands may keep beside the journal, each
// with its supervisor, for as long as they run. All together that is half of what the
// agent may hold, so that the journal has the other half at least; a part of it is left
// for those that may still begin, so that there is some for each.
type budget struct {
	total int64
	each  int64 // at most
	slots int64 // commands at a time

	mu      sync.Mutex // guards what follows
	used    int64
	running int64
}

// newBudget is the budget of an agent that holds at most so many bytes, of one job and in
// all, and runs so many attempts.
func newBudget(ofAgent, ofJob int64, attempts int) *budget {
	return &budget{total: ofAgent / 2, each: ofJob / 2, slots: int64(attempts)}
}

// take returns how many bytes a command that begins now may keep, at most limit. They are
// to be given back.
func (b *budget) take(limit int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	base := b.total / (2 * b.slots)
	left := b.total - b.used - base*max(b.slots-b.running-1, 0)
	share := max(min(max(left/4, base), b.each, limit), minShare)
	b.used += share
	b.running++
	return share
}

// hold counts what a command may keep that an agent before this one has begun.
func (b *budget) hold(share int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += share
	b.running++
}

// give gives back what take returned, or hold was told.
func (b *budget) give(share int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= share
	b.running--
}
