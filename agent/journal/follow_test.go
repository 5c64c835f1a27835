package journal

import (
	"errors"
	"io/fs"
	"testing"
)

// TestFollow: what has to follow records whose commit failed is refused, though its
// caller does not know of that yet.
func TestFollow(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, g *gate, j *Journal) {
		k := key(1)
		must(t, j.AcceptStart(k, Accept{}, now()))
		must(t, wait(j.AppendAfter(k, 0, 0, []byte("a"))))
		g.mu.Lock()
		g.err = errors.New("no luck")
		g.mu.Unlock()
		if err := wait(j.AppendAfter(k, 1, 1, []byte("b"))); err == nil {
			t.Fatal("the commit did not fail")
		}
		if _, err := j.AppendAfter(k, 2, 2, []byte("c")); !errors.Is(err, ErrGap) {
			t.Errorf("records behind a gap: %v", err)
		}
		if _, _, err := j.EndAfter(k, 2, End{Records: 3}); !errors.Is(err, ErrGap) {
			t.Errorf("an end behind a gap: %v", err)
		}
		must(t, wait(j.AppendAfter(k, 1, 2, []byte("c")))) // 1 was acknowledged meanwhile
		c, _, err := j.EndAfter(k, 3, End{Records: 3})
		must(t, wait(c, err))
		if h, is := j.Get(k); !is || h.Records != 3 || h.State != Ended {
			t.Errorf("%+v", h)
		}
		must(t, j.Forget(k))
		if h, is := j.Get(k); is {
			t.Errorf("%+v of a tombstone", h)
		}
	})
}

// TestMount: a process whose machine crashed does nothing any more.
func TestMount(t *testing.T) {
	m := NewMemory()
	old := m.Mount()
	j, err := Open(old, Options{})
	must(t, err)
	must(t, j.AcceptStart(key(1), Accept{}, now()))
	m.Crash()
	if err := j.AcceptStart(key(2), Accept{}, now()); !errors.Is(err, ErrBroken) {
		t.Errorf("after the crash: %v", err)
	}
	_ = j.Close()
	if _, err := Open(old, Options{}); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("opened after the crash: %v", err)
	}
	for what, err := range map[string]error{
		"rename": old.Rename("a", "b"), "remove": old.Remove("a"), "sync": old.SyncDir(),
	} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	j, err = Open(m.Mount(), Options{})
	must(t, err)
	defer j.Close()
	if j.State(key(1)) != Started || j.State(key(2)) != Absent {
		t.Errorf("%v and %v", j.State(key(1)), j.State(key(2)))
	}
}
