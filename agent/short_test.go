package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/agent/internal/supervisor"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/wire"
)

// A command that could not be executed for want of something is put off for ten minutes, and then refused: limits of
// its own may be why there is never enough. One that never can be executed is refused at once.
func TestCommandsThatCannotBeExecuted(t *testing.T) {
	exec := func(errno syscall.Errno) error { return &supervisor.ExecError{Stage: "exec", Err: errno} }
	for name, c := range map[string]struct {
		err    error
		putOff bool
	}{
		"a fork without room":     {exec(syscall.EAGAIN), true},
		"a fork without memory":   {exec(syscall.ENOMEM), true},
		"files have run out":      {&fs.PathError{Op: "open", Path: "/dev/null", Err: syscall.EMFILE}, true},
		"files of all":            {fmt.Errorf("a user: %w", syscall.ENFILE), true},
		"there is no such":        {exec(syscall.ENOENT), false},
		"it may not be":           {exec(syscall.EACCES), false},
		"it is of something else": {errors.New("no luck"), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, k := New(Config{}), journal.Key{Job: "job", Attempt: 1}
				if is := a.putsOff(k, c.err); is != c.putOff {
					t.Errorf("put off at first: %t", is)
				}
				time.Sleep(shortTime - time.Nanosecond)
				if is := a.putsOff(k, c.err); is != c.putOff {
					t.Errorf("put off before the time is over: %t", is)
				}
				time.Sleep(time.Nanosecond)
				if a.putsOff(k, c.err) {
					t.Error("put off for ever")
				}
			})
		})
	}
}

// A command that was put off in one shortage is put off in another one that comes later, too.
func TestAnotherShortageBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, k, short := New(Config{}), journal.Key{Job: "job", Attempt: 1}, &supervisor.ExecError{Stage: "exec", Err: syscall.EAGAIN}
		for range 3 {
			for asked := range 20 {
				if is, want := a.putsOff(k, short), asked < 10; is != want {
					t.Fatalf("put off after %d minutes: %t", asked, is)
				}
				time.Sleep(time.Minute)
			}
			time.Sleep(shortTime)
		}
	})
}

// Before it was prepared, and after its start was journalled, a command is answered alike.
func TestWhatACommandThatCannotBeExecutedIsAnswered(t *testing.T) {
	short := error(&supervisor.ExecError{Stage: "user", Err: &fs.PathError{Op: "open", Path: "/etc/passwd", Err: syscall.EMFILE}})
	never := error(&supervisor.ExecError{Stage: "lookup", Err: syscall.ENOENT})
	no := refusal{reason: wire.NotNowNoSpace}
	s := newSpooling(t)
	defer s.close()
	s.info = &CallInfo{}
	for name, c := range map[string]struct {
		got    refusal
		putOff bool
	}{
		"prepared, for now":    {new(commandRun).unprepared(s.attempt, short), true},
		"prepared, never":      {new(commandRun).unprepared(s.attempt, never), false},
		"retracted, for now":   {new(commandRun).failed(s.attempt, short, no), true},
		"retracted, never":     {new(commandRun).failed(s.attempt, never, no), false},
		"not retracted":        {new(commandRun).failed(s.attempt, short, refusal{}), false},
		"retracted, no reason": {new(commandRun).failed(s.attempt, errors.New("no luck"), no), true},
	} {
		if putOff := c.got.reason == wire.NotNowNoSpace; putOff != c.putOff || putOff == (c.got.failure != nil) {
			t.Errorf("%s: %+v", name, c.got)
		}
	}
}

// Of how many commands it is known since when they are put off is bounded.
func TestCommandsThatArePutOffAreBounded(t *testing.T) {
	a := New(Config{})
	for n := range int64(2 * maxShort) {
		if !a.putsOff(journal.Key{Job: "job", Attempt: n}, &proc.ExecError{Err: syscall.EAGAIN}) {
			t.Fatal("one is refused")
		}
	}
	if n := len(a.short); n > maxShort {
		t.Errorf("%d are known", n)
	}
}
