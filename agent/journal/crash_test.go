package journal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
)

// script goes through all that an attempt may do, and far enough that segments roll
// and are removed.
func script() []op {
	a1, a2, b, c, d := universe[0], universe[1], universe[2], universe[3], universe[4]
	ops := []op{
		opAccept(a1, 1, true), opAppend(a1, 0, "r0", "r1"), opAccept(b, 2, false), opSync(), opAck(a1, 1), opStart(b),
		opStop(b, "cancel"), opAppend(a1, 0, "r2"), opEnd(a1, "value"), opAccept(c, 3, false), opWithdraw(c), opAccept(c, 4, true), opRetract(c),
		opAccept(c, 4, true), opForget(a1), opEnd(b, "stopped"), opAccept(d, 5, true),
	}
	for i := range 12 {
		ops = append(ops, opAppend(d, 0, fmt.Sprintf("%0600d", i)), opSync(), opAck(d, int64(i)), opAppend(c, 0, fmt.Sprint("c", i)))
	}
	return append(ops, opAccept(a2, 6, true), opEnd(d, fmt.Sprintf("%01000d", 7)), opForget(b), opForget(d), opEnd(c, ""), opSync())
}

// play runs the script until a call fails. The history says what is there.
func play(j *Journal, h *history) (failed error) {
	for _, o := range script() {
		o.model(h.now)
		if err := o.call(j); err != nil {
			h.since = append(h.since, h.now.clone())
			return err
		}
		h.step(!o.later)
	}
	return nil
}

// TestKillAtEveryCall: the process dies in each call to the files, and the machine only
// once another process has opened what that left. What the second one found and has
// added is there in the end: no step of the first was left half durable.
func TestKillAtEveryCall(t *testing.T) {
	last := calls(t) + 20
	for n := 1; n <= last; n++ {
		for mode := range 4 {
			mem, h := NewMemory(), newHistory()
			fails := FailAt(mem, n, errors.New("killed"))
			fails.Forever, fails.Anyway = true, mode&1 == 1
			if first, err := Open(fails, small); err == nil {
				_ = play(first, h)
				_ = first.Close()
			}
			second, err := Open(mem, small)
			if err != nil {
				t.Fatalf("call %d, mode %d: %v", n, mode, err)
			}
			found, err := look(second, universe)
			must(t, err)
			must(t, h.allows(found))
			must(t, second.AcceptStart(Key{"second", 1}, Accept{}, now()))
			crash(mem, uint64(mode&2))
			_ = second.Close()
			inspect(t, mem, h)
			third, err := Open(mem, small)
			must(t, err)
			if s := third.State(Key{"second", 1}); s != Started {
				t.Errorf("what the second process accepted is %v", s)
			}
			must(t, third.Close())
			if t.Failed() {
				t.Fatalf("call %d, mode %d", n, mode)
			}
		}
	}
}

// TestCrashWhileReopening: a process dies in each call to the files, having written what is
// not synced, and the machine in each call of the next process, which reads that; of the
// files' names all changes are on disk, of their content what was synced. What was
// acknowledged is there: nothing was removed that is needless only by what was not synced.
func TestCrashWhileReopening(t *testing.T) {
	last := calls(t) + 20
	for n := 1; n <= last; n++ {
		for call, opened := 1, false; !opened; call++ {
			mem, h := NewMemory(), newHistory()
			killed := FailAt(mem, n, errors.New("killed"))
			killed.Forever = true
			if first, err := Open(killed, small); err == nil {
				_ = play(first, h)
				_ = first.Close()
			}
			dead := FailAt(mem, call, errors.New("dead"))
			dead.Forever = true
			second, err := Open(dead, small)
			must(t, mem.SyncDir())
			mem.Crash()
			if opened = err == nil; opened {
				_ = second.Close()
			}
			inspect(t, mem, h)
			if t.Failed() {
				t.Fatalf("call %d, then call %d", n, call)
			}
		}
	}
}

// inspect opens a journal again and checks that it is what the history allows.
func inspect(t *testing.T, mem *Memory, h *history) {
	t.Helper()
	j, err := Open(mem, small)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	got, err := look(j, universe)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.allows(got); err != nil {
		t.Fatal(err)
	}
	if err := j.AcceptStart(Key{"fresh", 1}, Accept{}, now()); err != nil {
		t.Fatalf("the journal does not go on: %v", err)
	}
}

// oldest is the number of the first segment.
func oldest(j *Journal) uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.segments[0].number
}

// calls is how many calls to the files the script makes, about: those that remove
// segments depend on what is merged.
func calls(t *testing.T) int {
	t.Helper()
	fails := FailAt(NewMemory(), 0, nil)
	j, err := Open(fails, small)
	if err != nil {
		t.Fatal(err)
	}
	if err := play(j, newHistory()); err != nil {
		t.Fatal(err)
	}
	if oldest(j) < 3 {
		t.Fatal("the script removes too few segments")
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return fails.Calls()
}

// TestCrashAtEveryCall: the machine dies in each call to the files. What was
// acknowledged is there afterwards, nothing torn is.
func TestCrashAtEveryCall(t *testing.T) {
	last := calls(t) + 20
	for n := 1; n <= last; n++ {
		for _, anyway := range []bool{false, true} {
			for seed := range uint64(3) { // 0: all that was not synced is gone
				mem, h := NewMemory(), newHistory()
				fails := FailAt(mem, n, errors.New("dead"))
				fails.Forever, fails.Anyway = true, anyway
				if j, err := Open(fails, small); err == nil {
					_ = play(j, h)
					crash(mem, seed)
					_ = j.Close()
				} else {
					crash(mem, seed)
				}
				inspect(t, mem, h)
				if t.Failed() {
					t.Fatalf("call %d, anyway %v, seed %d", n, anyway, seed)
				}
			}
		}
	}
}

func crash(mem *Memory, seed uint64) {
	if seed == 0 {
		mem.Crash()
		return
	}
	mem.Tear(rand.New(rand.NewPCG(seed, 0)))
}

// TestErrorAtEveryCall: one call to the files fails, or all from one on. Nothing is
// acknowledged that is not there after a crash; what was answered with another error
// than ErrBroken is not there, also if the machine dies at once; the journal goes on, or
// says that it is broken.
func TestErrorAtEveryCall(t *testing.T) {
	causes := []error{syscall.EIO, syscall.ENOSPC}
	last := calls(t) + 20
	for n := 1; n <= last; n++ {
		for mode := range 8 {
			errorAt(t, n, mode&1 == 1, mode&2 == 2, mode&4 == 4, causes[n%2])
			if t.Failed() {
				t.Fatalf("call %d, mode %d", n, mode)
			}
		}
	}
}

func errorAt(t *testing.T, n int, anyway, forever, atOnce bool, cause error) {
	t.Helper()
	mem, h := NewMemory(), newHistory()
	fails := FailAt(mem, n, cause)
	fails.Anyway, fails.Forever = anyway, forever
	j, err := Open(fails, small)
	if err != nil {
		if !errors.Is(err, cause) {
			t.Errorf("open: %v", err)
		}
		mem.Crash()
		inspect(t, mem, h)
		return
	}
	err = play(j, h)
	switch {
	case err == nil:
	case !errors.Is(err, cause) || errors.Is(cause, syscall.ENOSPC) && !errors.Is(err, ErrFull):
		t.Errorf("the error is %v", err)
	case errors.Is(err, ErrBroken):
		if again := j.AcceptStart(Key{"x", 1}, Accept{}, now()); !errors.Is(again, ErrBroken) {
			t.Errorf("a broken journal answers %v", again)
		}
		if j.Err() == nil {
			t.Error("a broken journal does not say so")
		}
	default: // undone, but for what lasts
		h.undo()
		if !forever && !atOnce {
			o := opAccept(Key{"x", 1}, 1, true)
			if err := o.call(j); err != nil {
				t.Errorf("the journal does not go on: %v", err)
			}
		}
	}
	mem.Crash()
	_ = j.Close()
	inspect(t, mem, h)
}
