package harptest

import (
	"errors"
	"sync"
	"syscall"

	"github.com/harpcaller/harp/store"
)

// SetSpace says how much room the dispatcher's disk has from now on, to dispatchers
// that are started later as well.
func (s *System) SetSpace(space store.Space) {
	s.t.Helper()
	s.inTurn(func() { s.disk.SetSpace(space) })
}

// PoisonDispatcher makes every further commit of the dispatcher fail. With the first it
// closes its connections and serves no more, as a process that ends, and must be crashed:
// the next one finds what was committed.
func (s *System) PoisonDispatcher() {
	s.t.Helper()
	s.inTurn(func() {
		if s.desk.isUp() {
			s.disk.FailCommits(errBrokenDisk)
		}
	})
}

var errBrokenDisk = errors.New("harptest: the disk is broken")

// FillDisk leaves no room on the disk of a host: what its agent writes is written in
// part and fails.
func (s *System) FillDisk(host string) { s.t.Helper(); s.trouble(host, diskFull) }

// BreakDisk makes all that the agent of a host does with its disk fail.
func (s *System) BreakDisk(host string) { s.t.Helper(); s.trouble(host, diskBroken) }

// MendDisk undoes FillDisk and BreakDisk. An agent that cannot start without its disk
// is started again every second.
func (s *System) MendDisk(host string) { s.t.Helper(); s.trouble(host, diskWorks) }

func (s *System) trouble(host string, t diskTrouble) {
	s.t.Helper()
	s.inTurn(func() {
		if m := s.machine(host); m != nil {
			m.trouble.set(t)
		}
	})
}

// diskTrouble is what is wrong with a host's disk.
type diskTrouble int

const (
	diskWorks diskTrouble = iota
	diskFull
	diskBroken
)

// trouble is that of a disk at this moment.
type trouble struct {
	mu  sync.Mutex
	is  diskTrouble // guarded by mu
	was bool        // guarded by mu: it has ever been anything else than well
}

func (t *trouble) set(is diskTrouble) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.is, t.was = is, t.was || is != diskWorks
}

// wasThere reports whether the disk has ever been in trouble.
func (t *trouble) wasThere() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.was
}

// grow is the error of what needs room.
func (t *trouble) grow() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.is {
	case diskFull:
		return syscall.ENOSPC
	case diskBroken:
		return syscall.EIO
	default:
		return nil
	}
}

// touch is the error of what needs none.
func (t *trouble) touch() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.is == diskBroken {
		return syscall.EIO
	}
	return nil
}
