package dispatcher

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// damagedClock is a store in which it cannot be read that the clock was set.
type damagedClock struct{ store.Store }

func (s damagedClock) Document(ctx context.Context, kind, name string) ([]byte, error) {
	if kind == clockKind {
		return nil, store.ErrDamaged
	}
	return s.Store.Document(ctx, kind, name)
}

// Where it cannot be read that the clock was set, nothing is deleted for its age for a day, be the dispatcher started anew meanwhile.
func TestThatTheClockWasSetCannotBeRead(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, st store.Store) store.Store{
		"damaged": func(_ *testing.T, st store.Store) store.Store { return damagedClock{st} },
		"no document": func(t *testing.T, st store.Store) store.Store {
			if err := st.PutDocument(t.Context(), clockKind, clockKind, []byte{0xc1}); err != nil {
				t.Fatal(err)
			}
			return st
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := memory.NewDisk()
				var ahead atomic.Int64
				run := func(st store.Store, do func(d *Dispatcher)) {
					d := opened(t, st, Config{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
					do(d)
					synctest.Wait()
					if err := d.Shutdown(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				run(memory.OpenDisk(disk, nil), func(d *Dispatcher) {
					ahead.Store(int64(60 * 24 * time.Hour))
					if err := d.clock.suspicion(); err == nil {
						t.Error("it was set, and is taken for right")
					}
				})
				run(damage(t, memory.OpenDisk(disk, nil)), func(d *Dispatcher) {
					if !d.retention().EndedBefore.IsZero() {
						t.Error("what is old goes")
					}
				})
				run(memory.OpenDisk(disk, nil), func(d *Dispatcher) {
					if err := d.clock.suspicion(); err == nil {
						t.Error("started anew it is taken for right")
					}
				})
				time.Sleep(25 * time.Hour)
				run(memory.OpenDisk(disk, nil), func(d *Dispatcher) {
					if err := d.clock.suspicion(); err != nil {
						t.Errorf("after a day it says %v", err)
					}
				})
			})
		})
	}
}

// A clock of which nobody knows whether it is right is not taken for right because it is set by a little.
func TestADoubtfulClockIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := time.Duration(0)
		c := newWallClock(func() time.Time { return time.Now().Add(ahead) }, func(time.Duration) {})
		c.doubt()
		ahead = 2 * time.Second
		if err := c.suspicion(); err == nil {
			t.Error("it is taken for right")
		}
		time.Sleep(setLong)
		if err := errors.Join(c.suspicion(), c.suspicion()); err != nil {
			t.Errorf("after a day it says %v", err)
		}
		ahead += time.Hour
		if err := c.suspicion(); err == nil {
			t.Error("it was set, and is taken for right")
		}
	})
}

// One that is set far meanwhile is taken for right a day after that, also where a dispatcher is started anew meanwhile.
func TestADoubtfulClockIsSetFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := time.Duration(0)
		clock := func() *wallClock {
			return newWallClock(func() time.Time { return time.Now().Add(ahead) }, func(time.Duration) {})
		}
		c := clock()
		c.doubt()
		<-c.judged
		time.Sleep(setLong - time.Hour)
		ahead = 60 * 24 * time.Hour
		c.now()
		select {
		case <-c.judged:
		default:
			t.Error("that is not stored")
		}
		time.Sleep(2 * time.Hour)
		started := clock()
		started.resumeFrom(c.document())
		for what, c := range map[string]*wallClock{"it": c, "started anew it": started} {
			if err := c.suspicion(); err == nil {
				t.Errorf("%s is taken for right", what)
			}
		}
		time.Sleep(setLong - 2*time.Hour)
		if err := errors.Join(c.suspicion(), started.suspicion()); err != nil {
			t.Errorf("a day after it was set: %v", err)
		}
	})
}
