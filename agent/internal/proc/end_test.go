//go:build unix

package proc

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// fakeTree is a tree that a test moves on at each look.
type fakeTree struct {
	looks []func() ([]member, error)

	last          func() ([]member, error) // of all further looks
	asked, killed []int
	deaf          int // how often it cannot ask
}

func (f *fakeTree) find(func(key) bool) ([]member, error) {
	if len(f.looks) == 0 {
		return f.last()
	}
	look := f.looks[0]
	f.looks = f.looks[1:]
	return look()
}

func (f *fakeTree) term(m member) bool {
	if f.deaf > 0 {
		f.deaf--
		return false
	}
	f.asked = append(f.asked, m.pid)
	return true
}
func (f *fakeTree) kill(m member) bool { f.killed = append(f.killed, m.pid); return true }
func (f *fakeTree) killAll()           {}

func shows(all ...member) func() ([]member, error) {
	return func() ([]member, error) { return slices.Clone(all), nil }
}

func TestEachProgramIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shell, sleep := member{pid: 7, name: "sh"}, member{pid: 7, name: "sleep"}
		f := &fakeTree{looks: []func() ([]member, error){shows(shell), shows(shell), shows(sleep), shows(sleep)}, last: shows()}
		if err := newEnding(f, 7, time.Now().Add(time.Hour)).run(newTally()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(f.asked, []int{7, 7}) || len(f.killed) > 0 {
			t.Errorf("asked %v, killed %v", f.asked, f.killed)
		}
	})
}

// TestWhatCouldNotBeAskedIsAskedAgain checks that a command whose processes could not be sent TERM, as files had run out, is
// sent it when it can be, and not KILL alone when its grace is over.
func TestWhatCouldNotBeAskedIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := shows(member{pid: 7, name: "sh"})
		f := &fakeTree{looks: []func() ([]member, error){runs, runs, runs, runs}, last: shows(), deaf: 2}
		if err := newEnding(f, 7, time.Now().Add(time.Hour)).run(newTally()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(f.asked, []int{7}) || len(f.killed) > 0 {
			t.Errorf("asked %v, killed %v", f.asked, f.killed)
		}
	})
}

func TestOneEmptyLookIsNotTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTree{looks: []func() ([]member, error){shows(member{pid: 7, group: 7}), shows(), shows(member{pid: 8})}, last: shows()}
		done := newTally()
		if err := newEnding(f, 7, time.Now().Add(time.Hour)).run(done); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(f.asked, []int{7, 8}) || done.ended() != 2 || len(done.strays) != 1 {
			t.Errorf("asked %v, %d strays", f.asked, len(done.strays))
		}
	})
}

func TestEndingSaysWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTree{last: shows(member{pid: 7, start: 3})}
		began := time.Now()
		err := newEnding(f, 7, began.Add(time.Minute)).run(newTally())
		var left *LeftError
		if !errors.As(err, &left) || len(left.Left) != 1 || left.Left[0].PID != 7 || left.Left[0].Start != 3 {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took < time.Minute+killFor || took > time.Minute+2*killFor {
			t.Errorf("it took %v", took)
		}
	})
}

// What cannot be seen is not taken for gone.
func TestEndingIsNotBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blind := errors.New("too many open files")
		f := &fakeTree{last: func() ([]member, error) { return nil, blind }}
		if err := newEnding(f, 7, time.Now()).run(newTally()); !errors.Is(err, blind) {
			t.Errorf("got %v", err)
		}
		f = &fakeTree{looks: []func() ([]member, error){f.last, shows(member{pid: 7})}, last: shows()}
		if err := newEnding(f, 7, time.Now()).run(newTally()); err != nil || len(f.killed) != 1 {
			t.Errorf("got %v, killed %v", err, f.killed)
		}
	})
}
