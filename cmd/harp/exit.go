package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/yamlfile"
	"github.com/harpcaller/harp/store"
)

// The exit codes. `harp help exit-codes` says the same.
const (
	exitOK          = 0
	exitFailed      = 1   // the procedure failed
	exitUsage       = 2   // usage, bad arguments, an id or key of another call; nothing ran
	exitCancelled   = 3   // the job was cancelled
	exitDenied      = 4   // not authenticated or not allowed
	exitNotFound    = 5   // no such host, job, procedure or queue; pruned
	exitRefused     = 6   // refused by the dispatcher, also for the state of something, or by the agent for another reason than 2, 4, 5
	exitUnreachable = 7   // host unreachable or job expired; did not run
	exitUnknown     = 8   // outcome unknown: lost, or a submission that may have arrived
	exitWaited      = 9   // waited for as long as was asked; the job goes on
	exitTimeout     = 124 // a time limit of the job
	exitHarp        = 125 // harp itself failed, as when the dispatcher cannot be reached
	exitDetached    = 130 // interrupted; the job goes on
)

// The exit codes that a command's own may be.
const (
	exitSignal  = 128 // and the number of the signal that ended it
	largestExit = 255
)

// exitCode is the exit code of a program that ended with err. If remote, a command's own is
// handed on as it is; otherwise only that of a signal is.
func exitCode(err error, remote bool) int {
	var (
		waited   *waitedError
		usage    *usageError
		detached *detachedError
		call     *harp.CallError
		failed   *harp.RemoteError
		checks   failedChecksError
		one      *exitOneError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, store.ErrPoisoned): // whatever it was that made a commit fail
		return exitHarp
	case errors.As(err, &checks), errors.As(err, &one):
		return exitFailed
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &detached):
		return exitDetached
	case errors.As(err, &call), errors.Is(err, harp.ErrLost):
		return exitUnknown
	case errors.As(err, &waited):
		return exitWaited
	case errors.As(err, &failed):
		if c := failed.ExitCode; c != nil && *c > 0 && *c <= largestExit && (remote || failed.Type == endedBySignal && *c > exitSignal) {
			return *c
		}
		return exitFailed
	case errors.Is(err, harp.ErrCancelled):
		return exitCancelled
	case errors.Is(err, harp.ErrTimeout):
		return exitTimeout
	case errors.Is(err, harp.ErrDenied):
		return exitDenied
	case errors.Is(err, harp.ErrNotFound), errors.Is(err, harp.ErrPruned):
		return exitNotFound
	case errors.Is(err, harp.ErrInvalid):
		return exitUsage
	case errors.Is(err, harp.ErrConflict):
		return conflictCode(err)
	case errors.Is(err, harp.ErrUnreachable), errors.Is(err, harp.ErrExpired):
		return exitUnreachable
	case errors.Is(err, harp.ErrRefused), errors.Is(err, harp.ErrNoSpace), errors.Is(err, harp.ErrRejected):
		return exitRefused
	case errors.Is(err, context.Canceled):
		return exitDetached
	}
	return exitHarp
}

// otherConfirmed is the type of a conflict about other hosts, or another request, than were confirmed.
const otherConfirmed = "confirmed"

// conflictCode is the exit code of a harp.ErrConflict: one of a type is about the state of what it
// names, as a host that is connected, and refused; any other is about an id or a key. What was not confirmed
// ends as if the answer had been no.
func conflictCode(err error) int {
	switch harp.FailureOf(err).Type {
	case "", harp.ConflictOfKey, otherConfirmed:
		return exitUsage
	}
	return exitRefused
}

// endedBySignal is the type of the failure of a command that a signal ended.
const endedBySignal = "signal"

// waitedError says that a job had not ended when there was no more time to wait.
type waitedError struct {
	job   string
	state string
	after time.Duration
}

func (e *waitedError) Error() string {
	return fmt.Sprintf("job %s has not ended after %s: %s; it goes on", e.job, e.after, e.state)
}

// usageError is a command line that cannot be. Nothing was done.
type usageError struct {
	command string // whose --help explains
	err     error
}

func (e *usageError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *usageError) Unwrap() error { return e.err }

// Is reports whether target is harp.ErrInvalid.
func (e *usageError) Is(target error) bool { return target == harp.ErrInvalid }

// invalid is a wrong flag or argument.
func invalid(field, format string, a ...any) error {
	return &harp.FieldError{Field: field, Message: fmt.Sprintf(format, a...)}
}

// detachedError says that the user no longer waits for jobs, which go on.
type detachedError struct {
	nothing string   // what did not happen, if there is nothing to come back to
	jobs    []string // that were waited for; none: what was printed has no end
	batch   string   // that was waited for
	resume  string   // the command with which to come back
	at      string   // where it was left: " at #17"
	goesOn  string   // what becomes of the one job, or the batch
}

func (e *detachedError) Error() string {
	switch {
	case e.nothing != "":
		return "interrupted; " + e.nothing
	case e.batch != "":
		return fmt.Sprintf("detached%s; batch %s %s. Resume with: %s", e.at, e.batch, cmp.Or(e.goesOn, "goes on"), e.resume)
	case len(e.jobs) == 0:
		return fmt.Sprintf("stopped%s. Resume with: %s", e.at, e.resume)
	case len(e.jobs) == 1:
		return fmt.Sprintf("detached%s; job %s %s. Resume with: %s", e.at, e.jobs[0], cmp.Or(e.goesOn, "goes on"), e.resume)
	}
	return fmt.Sprintf("detached; %d jobs were not waited for and go on. Resume with: %s", len(e.jobs), e.resume)
}

// saidError is what has been said already: of several jobs the worst end.
type saidError struct{ code int }

func (e *saidError) Error() string { return "exit code " + strconv.Itoa(e.code) }

// bySeverity are the exit codes from the worst on. All others are the least.
var bySeverity = []int{
	exitDetached, exitHarp, exitUnknown, exitWaited, exitTimeout, exitUnreachable, exitRefused, exitDenied, exitNotFound, exitUsage, exitCancelled,
}

// worseCode is the worse of two exit codes.
func worseCode(a, b int) int {
	rank := func(code int) int {
		at := slices.Index(bySeverity, code)
		switch {
		case code == exitOK:
			return len(bySeverity) + 1
		case at < 0:
			return len(bySeverity)
		}
		return at
	}
	if rank(b) < rank(a) {
		return b
	}
	return a
}

// reportError says on stderr what went wrong, and on stdout too where that is promised
// to be JSON. It returns the exit code.
func (c *cli) reportError(err error) int {
	if err == nil {
		return exitOK
	}
	var known *saidError
	if errors.As(err, &known) {
		return known.code
	}
	var detached *detachedError
	if errors.As(err, &detached) {
		c.complain("%s", err)
		return exitDetached
	}
	if (c.format == formatJSON || c.format == formatLines) && !c.wordless && !c.stdout.written {
		_ = c.printObject(object{{"error", harp.FailureOf(err)}}) // stderr says it, too
	}
	for _, one := range each(err) {
		c.complain("harp: %s", c.errorText(one))
	}
	var misread interface{ place() (text, caret string) }
	if errors.As(err, &misread) {
		text, caret := misread.place()
		c.complain("  %s", text)
		c.complain("  %s", caret)
	}
	var usage *usageError
	if errors.As(err, &usage) {
		c.complain("See: %s --help", usage.command)
	} else if next := nextStep(err); next != "" {
		c.notice("See: %s", next)
	}
	return exitCode(err, c.remote)
}

// nextStep is the command that tells more about an error; "" if the error says all.
func nextStep(err error) string {
	var (
		call  *harp.CallError
		away  *harp.HostError
		wrong *harp.FieldError
	)
	switch {
	case errors.As(err, &call):
		return "harp job show " + call.JobID
	case errors.Is(err, harp.ErrLost):
		return "harp help delivery"
	case errors.As(err, &away) && (errors.Is(err, harp.ErrUnavailable) || errors.Is(err, harp.ErrDenied)):
		return "harp doctor"
	case errors.As(err, &wrong) && wrong.Field == "context":
		return "harp doctor"
	case errors.Is(err, harp.ErrNotFound) && !errors.Is(err, harp.ErrRejected):
		return listOf[harp.FailureOf(err).Type]
	}
	return ""
}

// listOf is the command that lists what was not found.
var listOf = map[string]string{
	"host": "harp host ls", "procedure": "harp proc ls", "job": "harp job ls", "batch": "harp batch ls", "queue": "harp queue ls", "group": "harp group ls",
	"schedule": "harp schedule ls", "window": "harp maint ls", "notification": "harp notify ls", "message": "harp notify pending",
	"retention rule": "harp retain ls", "drift": "harp drift ls",
}

// each returns the errors of a configuration file one by one, and any other error as
// it is.
func each(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, each(e)...)
	}
	for _, e := range all {
		if _, ok := e.(*yamlfile.Error); !ok { //nolint:errorlint // as above
			return []error{err}
		}
	}
	return all
}

// notice is one line for people, on stderr, that --quiet leaves out.
func (c *cli) notice(format string, a ...any) {
	if !c.quiet {
		c.complain(format, a...)
	}
}

// complain is one line for people, on stderr.
func (c *cli) complain(format string, a ...any) {
	fmt.Fprintln(c.stderr, safeLine(fmt.Sprintf(format, a...))) //nolint:errcheck // there is nowhere to say it
}
