package rows

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/harpcaller/harp"
)

// faulty is a writer that fails from the n-th write on.
type faulty struct {
	io.Writer
	n   int
	err error
}

func (f *faulty) Write(b []byte) (int, error) {
	if f.n--; f.n < 0 {
		return 0, f.err
	}
	return f.Writer.Write(b)
}

// TestBackupIsWholeOrFails restores all that a backup has that reports success, and has the
// writer fail at each write: each time the backup reports that.
func TestBackupIsWholeOrFails(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	started(t, s)
	did, err := Restore(newTrial(), backedUp(t, s), noon, Options{})
	if err != nil || did.Rows != e.count() || did.Lost != 1 {
		t.Fatalf("%d rows of %d and %d jobs of 1 were restored, %v", did.Rows, e.count(), did.Lost, err)
	}
	broken := errors.New("broken")
	for n := range 100 {
		var out bytes.Buffer
		err := s.Backup(t.Context(), &faulty{&out, n, broken})
		if err == nil {
			if _, err := Restore(newTrial(), &out, noon, Options{}); err != nil || n < 10 {
				t.Errorf("after %d writes it is whole: %v", n, err)
			}
			return
		}
		if !errors.Is(err, broken) {
			t.Errorf("write %d failed: %v", n, err)
		}
		if _, err := Restore(newTrial(), &out, noon, Options{}); err == nil {
			t.Errorf("what was written before write %d is restored", n)
		}
	}
	t.Error("it takes no end")
}

// TestRestoreWithoutSpace checks that nothing is restored where there is not even space for
// what ends the jobs.
func TestRestoreWithoutSpace(t *testing.T) {
	s := opened(t, newTrial(), Options{})
	started(t, s)
	for space, isEnough := range map[Space]bool{SpaceFull: false, SpaceCritical: false, SpaceLow: true, SpacePlenty: true} {
		e := newTrial()
		e.space = space
		_, err := Restore(e, backedUp(t, s), noon, Options{})
		if !isEnough && (!errors.Is(err, harp.ErrNoSpace) || e.count() > 0) || isEnough && err != nil {
			t.Errorf("space is %s: %v, %d rows", space, err, e.count())
		}
	}
}
