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
		if s.node.isUp() {
			s.disk.FailCommits(errBrokenDisk)
		}
	})
}

var errBrokenDisk = errors.New("harptest: the disk is broken")

// FillDisk leaves no room on the disk of a host: what its agent writes is written in
// part and fails.
func (s *System) FillDisk(host string) { s.t.Helper(); s.setDiskState(host, diskFull) }

// BreakDisk makes all that the agent of a host does with its disk fail.
func (s *System) BreakDisk(host string) { s.t.Helper(); s.setDiskState(host, diskBroken) }

// MendDisk undoes FillDisk and BreakDisk. An agent that cannot start without its disk
// is started again every second.
func (s *System) MendDisk(host string) { s.t.Helper(); s.setDiskState(host, diskWorks) }

func (s *System) setDiskState(host string, t diskState) {
	s.t.Helper()
	s.inTurn(func() {
		if m := s.machine(host); m != nil {
			m.faults.setState(t)
		}
	})
}

// diskState is what is wrong with a host's disk.
type diskState int

const (
	diskWorks diskState = iota
	diskFull
	diskBroken
)

// diskFaults is what is wrong with a disk now, and whether anything ever was.
type diskFaults struct {
	mu        sync.Mutex
	state     diskState // guarded by mu
	hadFaults bool      // guarded by mu: it has ever been anything else than well
}

func (t *diskFaults) setState(is diskState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state, t.hadFaults = is, t.hadFaults || is != diskWorks
}

// everFailed reports whether the disk has ever been full or broken.
func (t *diskFaults) everFailed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hadFaults
}

// grow is the error of what needs room.
func (t *diskFaults) grow() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.state {
	case diskFull:
		return syscall.ENOSPC
	case diskBroken:
		return syscall.EIO
	default:
		return nil
	}
}

// touch is the error of what needs none.
func (t *diskFaults) touch() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == diskBroken {
		return syscall.EIO
	}
	return nil
}
