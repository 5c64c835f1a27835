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
// ten minutes, and then refused: limits of its own may be why there is never enough. One that never can be executed is
// refused at once, and one for which the disk is full waits until it is not.
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
		"the disk is full":         {&fs.PathError{Op: "write", Path: "spool", Err: syscall.ENOSPC}, true, true},
		"no quota is left":         {&fs.PathError{Op: "write", Path: "spool", Err: syscall.EDQUOT}, true, true},
		"the agent stops":          {fmt.Errorf("start: %w", context.Canceled), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, k := New(Config{}), journal.Key{Job: "job", Attempt: 1}
				if is := a.putsOff(k, c.err); is != c.putOff {
					t.Errorf("put off at first: %t", is)
				}
				time.Sleep(putOffTime - time.Nanosecond)
				if is := a.putsOff(k, c.err); is != c.putOff {
					t.Errorf("put off before the time is over: %t", is)
				}
				time.Sleep(time.Nanosecond)
				if is := a.putsOff(k, c.err); is != c.ever {
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
				if is, want := a.putsOff(k, short), asked < 10; is != want {
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
		if !a.putsOff(journal.Key{Job: "job", Attempt: n}, &proc.ExecError{Err: syscall.EAGAIN}) {
			t.Fatal("one is refused")
		}
	}
	if n := len(a.putOff); n > maxPutOff {
		t.Errorf("%d are known", n)
	}
}
