package journal

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// again is how long what was lost with a commit may take until it is on the disk once that works.
const again = 2 * time.Second

// lose lets the next sync fail, of what was journalled and of another attempt's start, and waits for that.
func (g *gate) lose(t *testing.T, j *Journal) {
	t.Helper()
	open := g.shut(errors.New("no space left on device"))
	open()
	if err := j.AcceptStart(Key{"other", 1}, Accept{}, time.Now()); err == nil {
		t.Fatal("the sync has not failed")
	}
}

// held opens what is on the disk and returns what it has of an attempt.
func (g *gate) held(t *testing.T, k Key) (h Held, s State) {
	t.Helper()
	g.Crash()
	j, err := Open(g.Memory, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	h, _ = j.Get(k)
	return h, j.State(k)
}

// TestWhatNobodyTellsAgainIsLostWithACommit checks that records that are kept elsewhere, and attempts that nobody asks
// for, or that are reduced, go on to be so when a commit fails: who said it is not told of that, and they would take room for ever.
func TestWhatNobodyTellsAgainIsLostWithACommit(t *testing.T) {
	k := Key{"job", 1}
	for name, c := range map[string]struct {
		say  func(j *Journal) error
		want func(h Held, s State) bool
	}{
		"records are acknowledged": {
			func(j *Journal) error { return j.Ack(k, 3) },
			func(h Held, _ State) bool { return h.Acked == 3 && h.Records == 4 },
		},
		"an attempt is forgotten": {
			func(j *Journal) error { return j.Forget(k) },
			func(_ Held, s State) bool { return s == Forgotten },
		},
		"both": {
			func(j *Journal) error { return errors.Join(j.Ack(k, 4), j.Forget(k)) },
			func(_ Held, s State) bool { return s == Forgotten },
		},
		"an attempt is reduced": {
			func(j *Journal) error { return j.Reduce(k, []byte("info"), []byte("end")) },
			func(h Held, s State) bool { return s == Ended && h.Records == 0 && string(h.Info) == "info" },
		},
		"it is forgotten then": {
			func(j *Journal) error { return errors.Join(j.Reduce(k, []byte("info"), []byte("end")), j.Forget(k)) },
			func(_ Held, s State) bool { return s == Forgotten },
		},
		"records are acknowledged that were not on the disk": {
			func(j *Journal) error {
				_, err := j.Append(k, 4, []byte("4"))
				return errors.Join(err, j.Ack(k, 5))
			},
			func(h Held, _ State) bool { return h.Acked == 4 && h.Records == 4 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, g *gate, j *Journal) {
				err := j.AcceptStart(k, Accept{}, time.Now())
				_, more := j.Append(k, 0, []byte("0"), []byte("1"), []byte("2"), []byte("3"))
				if err = errors.Join(err, more, j.Sync(), c.say(j)); err != nil {
					t.Fatal(err)
				}
				used := j.used
				g.lose(t, j)
				if h, _ := j.Get(k); !c.want(h, j.State(k)) || j.used > used {
					t.Errorf("the journal has %+v, %v, and counts %d bytes where it was told of %d", h, j.State(k), j.used, used)
				}
				time.Sleep(again)
				if h, s := g.held(t, k); !c.want(h, s) {
					t.Errorf("on the disk is %+v, %v", h, s)
				}
			})
		})
	}
}

// TestLostAgainAndAgain checks that as long as the disk takes nothing that is tried about once a second, and that a
// journal which is closed meanwhile is.
func TestLostAgainAndAgain(t *testing.T) {
	k := Key{"job", 1}
	for name, heals := range map[string]bool{"the disk works again": true, "it is closed": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gate{Memory: NewMemory()}
				full := &fullDisk{FS: g}
				j, err := Open(full, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if err := j.AcceptStart(k, Accept{}, time.Now()); err != nil {
					t.Fatal(err)
				}
				full.is.Store(true)
				if err := j.Forget(k); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if n := full.tried.Load(); n < 20 || n > 100 {
					t.Errorf("it was tried %d times in a minute", n)
				}
				if heals {
					full.is.Store(false)
					time.Sleep(again)
				}
				if err := j.Close(); (err == nil) != heals {
					t.Errorf("closing: %v", err)
				}
				if _, s := g.held(t, k); (s == Forgotten) != heals {
					t.Errorf("on the disk it is %v", s)
				}
			})
		})
	}
}

// TestKeptElsewhereIsLostWithACommit checks that what is kept elsewhere counts on when a commit fails that it has
// nothing to do with.
func TestKeptElsewhereIsLostWithACommit(t *testing.T) {
	k := Key{"job", 1}
	inBubble(t, Options{}, func(t *testing.T, g *gate, j *Journal) {
		err := j.AcceptStart(k, Accept{}, time.Now())
		if err = errors.Join(err, j.KeepElsewhere(k, 5000)); err != nil {
			t.Fatal(err)
		}
		used := j.used
		g.lose(t, j)
		if j.used != used {
			t.Errorf("%d bytes are counted, and %d were", j.used, used)
		}
		if err := errors.Join(j.Forget(k), j.Sync()); err != nil || j.used != 0 {
			t.Errorf("%d bytes are counted of nothing, %v", j.used, err)
		}
	})
}

// TestRecordsBehindWhatWasLost checks that records do not wait for longer to be synced as something is to be written again
// that was lost, also if more come all the time.
func TestRecordsBehindWhatWasLost(t *testing.T) {
	k := Key{"job", 1}
	inBubble(t, Options{}, func(t *testing.T, g *gate, j *Journal) {
		if err := errors.Join(j.AcceptStart(k, Accept{}, time.Now()), j.Forget(Key{"forgotten", 1})); err != nil {
			t.Fatal(err)
		}
		g.lose(t, j)
		begun := time.Now()
		first, err := j.Append(k, 0, []byte("0"))
		for n := int64(1); err == nil && n < 10; n++ {
			time.Sleep(50 * time.Millisecond)
			_, err = j.Append(k, n, []byte("more"))
		}
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-first.Done():
		default:
			t.Errorf("it is not synced after %v", time.Since(begun))
		}
	})
}
