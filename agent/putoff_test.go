package agent

import (
	"context"
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

// A command that could not be prepared or executed for want of something, or whatever was in its way, is put off for
// ten minutes, and then refused: limits of its own may be why there is never enough, and a disk may stay full. One that
// never can be executed is refused at once.
func TestCommandsThatCannotBeExecuted(t *testing.T) {
	exec := func(errno syscall.Errno) error { return &supervisor.ExecError{Stage: "exec", Err: errno} }
	for name, c := range map[string]struct {
		err          error
		putOff, ever bool
	}{
		"a fork without room":      {exec(syscall.EAGAIN), true, false},
		"a fork without memory":    {exec(syscall.ENOMEM), true, false},
		"files have run out":       {&fs.PathError{Op: "open", Path: "/dev/null", Err: syscall.EMFILE}, true, false},
		"files of all":             {fmt.Errorf("a user: %w", syscall.ENFILE), true, false},
		"a folder is a file":       {&fs.PathError{Op: "mkdir", Path: "run", Err: syscall.ENOTDIR}, true, false},
		"it is of something else":  {errors.New("no luck"), true, false},
		"there is no such":         {exec(syscall.ENOENT), false, false},
		"it may not be":            {exec(syscall.EACCES), false, false},
		"as many mounts as may be": {exec(syscall.ENOSPC), false, false},
		"the disk is full":         {&fs.PathError{Op: "write", Path: "spool", Err: syscall.ENOSPC}, true, false},
		"no quota is left":         {&fs.PathError{Op: "write", Path: "spool", Err: syscall.EDQUOT}, true, false},
		"the agent stops":          {fmt.Errorf("start: %w", context.Canceled), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, k := New(Config{}), journal.Key{Job: "job", Attempt: 1}
				if is := a.putsOff("run", k, c.err); is != c.putOff {
					t.Errorf("put off at first: %t", is)
				}
				time.Sleep(putOffTime - time.Nanosecond)
				if is := a.putsOff("run", k, c.err); is != c.putOff {
					t.Errorf("put off before the time is over: %t", is)
				}
				time.Sleep(time.Nanosecond)
				if is := a.putsOff("run", k, c.err); is != c.ever {
					t.Errorf("put off for ever: %t", is)
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
				if is, want := a.putsOff("run", k, short), asked < 10; is != want {
					t.Fatalf("put off after %d minutes: %t", asked, is)
				}
				time.Sleep(time.Minute)
			}
			time.Sleep(putOffTime)
		}
	})
}

// Before it was prepared, and after its start was journalled, a command is answered alike: it is put off, and refused
// when that has gone on for too long, with the reason.
func TestWhatACommandThatCannotBeExecutedIsAnswered(t *testing.T) {
	short := error(&supervisor.ExecError{Stage: "user", Err: &fs.PathError{Op: "open", Path: "/etc/passwd", Err: syscall.EMFILE}})
	never := error(&supervisor.ExecError{Stage: "lookup", Err: syscall.ENOENT})
	other := error(&fs.PathError{Op: "mkdir", Path: "run", Err: syscall.ENOTDIR})
	no := refusal{reason: wire.NotNowNoSpace}
	for name, c := range map[string]struct {
		err     error
		failed  *refusal // what came of taking back the start; nil: it was not prepared
		putsOff bool
	}{
		"not prepared, for now": {short, nil, true},
		"not prepared, never":   {never, nil, false},
		"not prepared, so":      {other, nil, true},
		"retracted, for now":    {short, &no, true},
		"retracted, never":      {never, &no, false},
		"retracted, so":         {other, &no, true},
		"not retracted":         {short, new(refusal), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpooling(t)
				defer s.close()
				answer := func() refusal {
					if c.failed != nil {
						return new(commandRun).failed(s.attempt, c.err, *c.failed)
					}
					return new(commandRun).unprepared(s.attempt, c.err)
				}
				is := answer()
				if putsOff := is.reason == wire.NotNowNoSpace; putsOff != c.putsOff || putsOff == (is.failure != nil) {
					t.Errorf("at first: %+v", is)
				}
				time.Sleep(putOffTime - time.Second)
				answer()
				time.Sleep(time.Second)
				if is = answer(); is.failure == nil || is.failure.Type != "exec" || is.failure.Message != c.err.Error() {
					t.Errorf("in the end: %+v", is)
				}
			})
		})
	}
}

// Of how many commands it is known since when they are put off is bounded.
func TestCommandsThatArePutOffAreBounded(t *testing.T) {
	a := New(Config{})
	for n := range int64(2 * maxPutOff) {
		if !a.putsOff("run", journal.Key{Job: "job", Attempt: n}, &proc.ExecError{Err: syscall.EAGAIN}) {
			t.Fatal("one is refused")
		}
	}
	if n := len(a.putOff.calls); n > maxPutOff {
		t.Errorf("%d are known", n)
	}
}

// What is in the way of the commands of a procedure counts from when it came, whichever of them met it: until one of
// them begins, or none was tried for a while. Each is put off for ten minutes at most, whatever becomes of the others.
func TestCommandsOfOneProcedureArePutOffTogether(t *testing.T) {
	short := &supervisor.ExecError{Stage: "exec", Err: syscall.EAGAIN}
	for name, c := range map[string]struct {
		between func(a *Agent)
		putOff  bool // another command after ten minutes
	}{
		"it stays":                {func(*Agent) {}, false},
		"one began":               {func(a *Agent) { a.putOff.noteBegun("run", journal.Key{Job: "another"}) }, true},
		"one of another did":      {func(a *Agent) { a.putOff.noteBegun("walk", journal.Key{Job: "another"}) }, false},
		"none was tried":          {func(*Agent) { time.Sleep(putOffPause) }, true},
		"for a little":            {func(*Agent) { time.Sleep(putOffPause - time.Minute - 1) }, false},
		"another one never can":   {func(a *Agent) { a.putsOff("run", journal.Key{}, &supervisor.ExecError{Err: syscall.ENOENT}) }, false},
		"the agent stops with it": {func(a *Agent) { a.putsOff("run", journal.Key{}, context.Canceled) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := New(Config{})
				for n := range int64(10) {
					if !a.putsOff("run", journal.Key{Job: "first", Attempt: n}, short) {
						t.Fatalf("refused after %d minutes", n)
					}
					time.Sleep(time.Minute)
				}
				c.between(a)
				if is := a.putsOff("run", journal.Key{Job: "last"}, short); is != c.putOff {
					t.Errorf("put off: %t", is)
				}
				if !a.putsOff("walk", journal.Key{Job: "walk"}, short) {
					t.Error("one of another procedure is refused")
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		a, k := New(Config{}), journal.Key{Job: "never", Attempt: 1}
		for n := range 11 {
			if is, want := a.putsOff("run", k, short), n < 10; is != want {
				t.Errorf("beside others that begin it is put off after %d minutes: %t", n, is)
			}
			a.putOff.noteBegun("run", journal.Key{Job: "another"})
			time.Sleep(time.Minute)
		}
	})
}
