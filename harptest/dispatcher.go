package harptest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// dispatcherNode runs the system's dispatcher.
type dispatcherNode struct {
	sys      *System
	d        *dispatcher.Dispatcher // nil: down
	listener net.Listener
	work     sync.WaitGroup // of the dispatchers, those that crashed too
}

// StartDispatcher starts the dispatcher on the disk that the one before has left.
// Callers and agents connect again by themselves, see [System.WaitOnline].
func (s *System) StartDispatcher() {
	s.t.Helper()
	s.inTurn(func() {
		if s.node.d != nil {
			s.t.Error("harptest: the dispatcher runs")
		} else if err := s.node.startDispatcher(); err != nil {
			s.t.Error("harptest: start the dispatcher: ", err)
		}
	})
}

// StopDispatcher shuts the dispatcher down in order.
func (s *System) StopDispatcher() {
	s.t.Helper()
	s.inTurn(func() {
		if s.node.isUp() {
			s.node.stopDispatcher()
		}
	})
}

// CrashDispatcher ends the dispatcher as the loss of its power would: what it has not
// committed is forgotten. Its connections are reset.
func (s *System) CrashDispatcher() {
	s.t.Helper()
	s.inTurn(func() {
		if s.node.isUp() {
			s.node.crashDispatcher()
		}
	})
}

// RestartDispatcher stops the dispatcher in order and starts it anew.
func (s *System) RestartDispatcher() {
	s.t.Helper()
	s.StopDispatcher()
	s.StartDispatcher()
}

// RestoreDispatcher gives the dispatcher, which must be down, another disk: with what a
// backup has. The next one has a new store id.
func (s *System) RestoreDispatcher(backup io.Reader) store.Restored {
	s.t.Helper()
	var did store.Restored
	s.inTurn(func() {
		if s.node.d != nil {
			s.t.Error("harptest: the dispatcher runs")
			return
		}
		disk := memory.NewDisk()
		var err error
		if did, err = memory.Restore(disk, backup, time.Now(), nil); err != nil {
			s.t.Error("harptest: restore: ", err)
			return
		}
		s.disk = disk
	})
	return did
}

// isUp fails the test if the dispatcher is down.
func (k *dispatcherNode) isUp() bool {
	k.sys.t.Helper()
	if k.d == nil {
		k.sys.t.Error("harptest: the dispatcher is down")
	}
	return k.d != nil
}

func (k *dispatcherNode) startDispatcher() error {
	s := k.sys
	cfg := s.options.Dispatcher
	if cfg.Logger == nil {
		cfg.Logger = s.log
	}
	l, err := s.network.Listen(address, dispatcherID)
	if err != nil {
		return err
	}
	s.disk.FailCommits(nil)
	st := memory.OpenDisk(s.disk, nil)
	if wrap := s.options.wrapStore; wrap != nil {
		st = wrap(st)
	}
	d, err := dispatcher.Open(s.t.Context(), slowStore{st, s.slow}, cfg)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	k.d, k.listener = d, l
	k.work.Go(func() {
		err := d.Serve(context.WithoutCancel(s.t.Context()), l, nil)
		wasAsked := errors.Is(err, harp.ErrClosed) || errors.Is(err, net.ErrClosed) || errors.Is(err, errBrokenDisk) || errors.Is(err, memory.ErrCrashed)
		if err != nil && !wasAsked {
			s.t.Error("harptest: serve: ", err)
		}
	})
	return nil
}

// stopDispatcher shuts the dispatcher down if it runs.
func (k *dispatcherNode) stopDispatcher() {
	if k.d == nil {
		return
	}
	if err := k.d.Shutdown(context.WithoutCancel(k.sys.t.Context())); err != nil {
		k.sys.t.Error("harptest: stop the dispatcher: ", err)
	}
	k.d = nil
	_ = k.listener.Close()
}

// crashDispatcher cuts the dispatcher's connections and its disk, and does not wait for its end.
func (k *dispatcherNode) crashDispatcher() {
	d := k.d
	k.d = nil
	_ = k.listener.Close()
	for _, m := range k.sys.machines {
		k.sys.network.Reset(m.id, dispatcherID)
	}
	k.sys.network.Reset(callerID, dispatcherID)
	k.sys.disk.Crash()
	k.work.Go(func() {
		_ = d.Shutdown(context.WithoutCancel(k.sys.t.Context())) // its store is gone
	})
}
