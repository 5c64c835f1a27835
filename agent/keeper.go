package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// DirInUseError says that another process keeps its journal in an agent's directory.
type DirInUseError struct{ Dir string }

func (e *DirInUseError) Error() string {
	return fmt.Sprintf("agent: %s is in use by another process", e.Dir)
}

// Is reports whether target is harp.ErrConflict.
func (e *DirInUseError) Is(target error) bool { return target == harp.ErrConflict }

// The defaults of MaxJournal, for a journal in memory too, and of MaxJobSpool.
const (
	durableJournal  = 1 << 30
	volatileJournal = 64 << 20
	jobSpool        = 64 << 20
)

// minSegment and maxSegment are how many bytes a segment of the journal has: some of them
// are on the disk beside what is needed.
const (
	minSegment = 64 << 10
	maxSegment = 4 << 20
)

// keeper has the agent's journal open while anybody uses it, and opens it anew when
// it broke.
type keeper struct {
	dir  string // empty: nothing to lock
	fs   journal.FS
	lost bool // with the process is what is in the journal
	opts journal.Options
	log  *slog.Logger

	loops sync.WaitGroup // of attempts, which wait for commits

	mu      sync.Mutex // guards what follows; held while the journal is opened and closed
	users   int
	unlock  func()
	resting time.Time // tryRepair does nothing before

	now     sync.Mutex       // guards what follows; never held while blocked
	journal *journal.Journal // nil: closed
	renewed chan struct{}    // closed when there is another
	closing chan struct{}    // closed when nobody uses it any more
}

// newKeeper is the keeper of a configuration's journal.
func newKeeper(cfg *Config, log *slog.Logger) *keeper {
	k := &keeper{
		fs:      cfg.Journal,
		opts:    journal.Options{MaxAgent: cfg.Limits.MaxJournal, MaxJob: cfg.Limits.MaxJobSpool},
		log:     log,
		renewed: make(chan struct{}),
	}
	switch {
	case k.fs != nil:
	case cfg.Dir != "":
		k.dir, k.fs = cfg.Dir, journal.Disk(filepath.Join(cfg.Dir, "journal"))
	default:
		k.fs, k.lost = journal.NewMemory(), true
		setDefault(&k.opts.MaxAgent, volatileJournal)
	}
	setDefault(&k.opts.MaxAgent, durableJournal)
	setDefault(&k.opts.MaxJob, jobSpool)
	k.opts.SegmentSize = min(max(k.opts.MaxAgent/8, minSegment), maxSegment)
	return k
}

// open is for one more user. It waits a moment for a directory that is in use, at most until
// ctx ends. Errors: *DirInUseError, and those of journal.Open.
func (k *keeper) open(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.users == 0 {
		if err := k.lock(ctx); err != nil {
			return err
		}
		if err := k.begin(); err != nil {
			k.unlock()
			return err
		}
	}
	k.users++
	return nil
}

// lock locks the directory. A repair of the journal there may have been interrupted.
func (k *keeper) lock(ctx context.Context) error {
	k.unlock = func() {}
	if k.dir == "" {
		return nil
	}
	unlock, err := lockDir(ctx, k.dir)
	if err != nil {
		return err
	}
	if err := finishRepair(k.dir); err != nil {
		unlock()
		return fmt.Errorf("agent: %w", err)
	}
	k.unlock = unlock
	return nil
}

// begin opens the journal.
func (k *keeper) begin() error {
	j, err := k.load()
	if err != nil {
		return err
	}
	k.now.Lock()
	defer k.now.Unlock()
	k.journal, k.closing = j, make(chan struct{})
	return nil
}

// load opens the journal. What was accepted and not started never will be.
func (k *keeper) load() (*journal.Journal, error) {
	j, err := journal.Open(k.fs, k.opts)
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	if was := j.CopyOf(); was != "" {
		k.log.Warn("the journal is a copy, or was put back from one: it is another one now, and what was sent to this host and is not in it is lost", "was", was, "is", j.ID())
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
func (k *keeper) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.users--; k.users > 0 {
		return
	}
	k.now.Lock()
	j := k.journal
	k.journal = nil
	close(k.closing)
	k.now.Unlock()
	if err := j.Close(); err != nil {
		k.log.Error("the journal was not closed in order", "error", err.Error())
	}
	k.loops.Wait()
	k.unlock()
}

// owes reports whether the journal has something that would be lost with the process.
func (k *keeper) owes() bool {
	j := k.current()
	return k.lost && j != nil && len(j.Held()) > 0
}

// current is the journal as it is open; nil: it is not.
func (k *keeper) current() *journal.Journal {
	k.now.Lock()
	defer k.now.Unlock()
	return k.journal
}

// withPosition is END with how far the journal is, by which a dispatcher knows that it was rolled back
// when it is less far later.
func (a *Agent) withPosition(end wire.End) wire.End {
	if j := a.keeper.current(); j != nil {
		end.Position = j.Position()
	}
	return end
}

// waits returns what is closed when there is another journal, and when there will be
// none.
func (k *keeper) waits() (renewed, closing <-chan struct{}) {
	k.now.Lock()
	defer k.now.Unlock()
	return k.renewed, k.closing
}

// repair opens the journal anew if it broke. The error says why that cannot be done
// now.
func (k *keeper) repair() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.repairLocked()
}

// tryRepair is repair for the attempts that wait for another journal, all of which ask for it again
// and again. It does nothing while the journal is opened or closed, and little at a time.
func (k *keeper) tryRepair() {
	if !k.mu.TryLock() {
		return
	}
	defer k.mu.Unlock()
	began := time.Now()
	if began.Before(k.resting) {
		return
	}
	_ = k.repairLocked() // it is tried again
	k.resting = time.Now().Add(max(retryJournal, 10*time.Since(began)))
}

func (k *keeper) repairLocked() error {
	old := k.current()
	if old == nil {
		return journal.ErrClosed
	}
	broken := old.Err()
	if broken == nil {
		return nil
	}
	_ = old.Close() // says what is known: it broke
	j, err := k.load()
	if err != nil {
		return err
	}
	k.log.Warn("the journal works again", "was", broken.Error())
	k.now.Lock()
	defer k.now.Unlock()
	k.journal = j
	close(k.renewed)
	k.renewed = make(chan struct{})
	return nil
}
