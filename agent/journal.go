package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/journal"
)

// DirInUseError says that another process keeps its journal in an agent's directory.
type DirInUseError struct{ Dir string }

func (e *DirInUseError) Error() string {
	return fmt.Sprintf("agent: folder %s is locked by another process", e.Dir)
}

// Is reports whether target is harp.ErrConflict.
func (e *DirInUseError) Is(target error) bool { return target == harp.ErrConflict }

// minSegment and maxSegment are how many bytes a segment of the journal has: some of them
// are on the disk beside what is needed.
const (
	minSegment = 64 << 10
	maxSegment = 4 << 20
)

// journalHandle has the agent's journal open while anybody uses it, and opens it anew when
// it broke.
type journalHandle struct {
	dir  string // empty: nothing to lock
	fs   journal.FS
	lost bool // with the process is what is in the journal
	opts journal.Options
	log  *slog.Logger

	loops sync.WaitGroup // of attempts, which wait for commits

	// turn guards what follows. It is had while the journal is opened and closed, and is no
	// mutex, since virtual time stands still while somebody waits for one.
	turn    chan struct{}
	users   int
	unlock  func()
	resting time.Time // tryRepair does nothing before

	now     sync.Mutex       // guards what follows; never held while blocked
	journal *journal.Journal // nil: closed
	renewed chan struct{}    // closed when there is another
	closing chan struct{}    // closed when nobody uses it any more
}

// newJournalHandle is the handle of a configuration's journal.
func newJournalHandle(cfg *Config, log *slog.Logger) *journalHandle {
	h := &journalHandle{
		fs:      cfg.Journal,
		opts:    journal.Options{MaxAgent: cfg.Limits.MaxJournal, MaxJob: cfg.Limits.MaxJobSpool, MaxAttempts: maxHeld},
		log:     log,
		turn:    make(chan struct{}, 1),
		renewed: make(chan struct{}),
	}
	switch {
	case h.fs != nil:
	case cfg.Dir != "":
		h.dir, h.fs = cfg.Dir, journal.Disk(filepath.Join(cfg.Dir, "journal"))
	default:
		h.fs, h.lost = journal.NewMemory(), true
		setDefault(&h.opts.MaxAgent, volatileJournal)
	}
	setDefault(&h.opts.MaxAgent, durableJournal)
	setDefault(&h.opts.MaxJob, jobSpool)
	h.opts.SegmentSize = min(max(h.opts.MaxAgent/8, minSegment), maxSegment)
	return h
}

func (h *journalHandle) endTurn() { <-h.turn }

// open is for one more user. It waits a moment for a directory that is in use, at most until
// ctx ends. Errors: *DirInUseError, and those of journal.Open.
func (h *journalHandle) open(ctx context.Context) error {
	h.turn <- struct{}{}
	defer h.endTurn()
	if h.users == 0 {
		if err := h.lock(ctx); err != nil {
			return err
		}
		if err := h.begin(); err != nil {
			h.unlock()
			return err
		}
	}
	h.users++
	return nil
}

// lock locks the directory. A repair of the journal there may have been interrupted.
func (h *journalHandle) lock(ctx context.Context) error {
	h.unlock = func() {}
	if h.dir == "" {
		return nil
	}
	unlock, err := lockDir(ctx, h.dir)
	if err != nil {
		return err
	}
	if err := finishRepair(h.dir); err != nil {
		unlock()
		return fmt.Errorf("agent: %w", err)
	}
	h.unlock = unlock
	return nil
}

// begin opens the journal.
func (h *journalHandle) begin() error {
	j, err := h.load()
	if err != nil {
		return err
	}
	h.now.Lock()
	defer h.now.Unlock()
	h.journal, h.closing = j, make(chan struct{})
	return nil
}

// load opens the journal. What was accepted and not started never will be.
func (h *journalHandle) load() (*journal.Journal, error) {
	j, err := journal.Open(h.fs, h.opts)
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	if was := j.CopyOf(); was != "" {
		h.log.Warn("the journal is a copy, or was put back from one: it is another one now, and what was sent to this host and is not in it is lost", "was", was, "is", j.ID())
	}
	if err := withdraw(j); err != nil {
		return nil, errors.Join(fmt.Errorf("agent: %w", err), j.Close())
	}
	return j, nil
}

// withdraw makes sure that what was accepted and not started cannot start any more.
func withdraw(j *journal.Journal) error {
	var keys []journal.Key
	for _, h := range j.Held() {
		if h.State == journal.Accepted {
			keys = append(keys, h.Key)
		}
	}
	return j.Withdraw(keys...)
}

// close is for one user fewer. The last one closes the journal, whose error is
// logged: what was not journalled by then is not in it.
func (h *journalHandle) close() {
	h.turn <- struct{}{}
	defer h.endTurn()
	if h.users--; h.users > 0 {
		return
	}
	h.now.Lock()
	j := h.journal
	h.journal = nil
	close(h.closing)
	h.now.Unlock()
	if err := j.Close(); err != nil {
		h.log.Error("the journal was not closed in order", "error", err.Error())
	}
	h.loops.Wait()
	h.unlock()
}

// owes reports whether the journal has something that would be lost with the process, and that is worth waiting for.
func (h *journalHandle) owes() bool {
	j := h.current()
	return h.lost && j != nil && slices.ContainsFunc(j.Held(), func(h journal.Held) bool { return !infoOf(h).Reduced })
}

// current is the journal as it is open; nil: it is not.
func (h *journalHandle) current() *journal.Journal {
	h.now.Lock()
	defer h.now.Unlock()
	return h.journal
}

// sync returns when all that the journal has taken is on disk. Errors: those of journal.Sync.
func (h *journalHandle) sync() error {
	j := h.current()
	if j == nil {
		return journal.ErrClosed
	}
	return j.Sync()
}

// taken is how many calls of a store the journal has ever taken; 0: it is not open.
func (h *journalHandle) taken(store string) int64 {
	j := h.current()
	if j == nil {
		return 0
	}
	return takenBy(j, store)
}

func takenBy(j *journal.Journal, store string) int64 {
	return int64(j.Taken(store)) //nolint:gosec // no journal takes so many
}

// waits returns what is closed when there is another journal, and when there will be
// none.
func (h *journalHandle) waits() (renewed, closing <-chan struct{}) {
	h.now.Lock()
	defer h.now.Unlock()
	return h.renewed, h.closing
}

// repair opens the journal anew if it broke. The error says why that cannot be done
// now.
func (h *journalHandle) repair() error {
	h.turn <- struct{}{}
	defer h.endTurn()
	return h.repairLocked()
}

// tryRepair is repair for the attempts that wait for another journal, all of which ask for it again
// and again. It does nothing while the journal is opened or closed, and little at a time.
func (h *journalHandle) tryRepair() {
	select {
	case h.turn <- struct{}{}:
	default:
		return
	}
	defer h.endTurn()
	began := time.Now()
	if began.Before(h.resting) {
		return
	}
	_ = h.repairLocked() // it is tried again
	h.resting = time.Now().Add(max(retryJournal, 10*time.Since(began)))
}

func (h *journalHandle) repairLocked() error {
	old := h.current()
	if old == nil {
		return journal.ErrClosed
	}
	broken := old.Err()
	if broken == nil {
		return nil
	}
	_ = old.Close() // says what is known: it broke
	j, err := h.load()
	if err != nil {
		return err
	}
	h.log.Warn("the journal works again", "was", broken.Error())
	h.now.Lock()
	defer h.now.Unlock()
	h.journal = j
	close(h.renewed)
	h.renewed = make(chan struct{})
	return nil
}
