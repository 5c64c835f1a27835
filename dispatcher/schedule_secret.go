package dispatcher

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/schema"
)

// shownSchedule is the status of a schedule without secrets: those that were known as such when it was put,
// or else that a host now declares.
func (d *Dispatcher) shownSchedule(s *scheduled, now time.Time) (harp.ScheduleStatus, error) {
	status := s.status(now)
	return status, hideInRequest(&status.Request, d.knownSecrets(s))
}

// hideInRequest takes the secrets out of the arguments of a request, and out of those of further steps, which share no
// memory with the ones given.
func hideInRequest(r *harp.Request, secret []string) (err error) {
	if r.Args, err = schema.HideArgs(r.Args, secret); err != nil {
		return err
	}
	r.Batch.Then = slices.Clone(r.Batch.Then)
	for n := range r.Batch.Then {
		s := &r.Batch.Then[n]
		if s.Args, err = schema.HideArgs(s.Args, secretsIn(secret, n)); err != nil {
			return err
		}
	}
	return nil
}

// stepPrefix is what the names of secrets of a further step begin with.
func stepPrefix(n int) string { return "steps[" + strconv.Itoa(n+2) + "]." }

// secretsIn are those of the names that are of a further step.
func secretsIn(names []string, step int) (own []string) {
	for _, name := range names {
		if rest, is := strings.CutPrefix(name, stepPrefix(step)); is {
			own = append(own, rest)
		}
	}
	return own
}

// knownSecrets are which arguments of a schedule are not to be shown.
func (d *Dispatcher) knownSecrets(s *scheduled) []string {
	if len(s.SecretArgs) > 0 {
		return s.SecretArgs
	}
	names, _ := d.secretsIn(&s.Schedule.Request)
	return names
}

// secretsIn returns which arguments of a request are not to be shown, those of further steps behind the name of the
// step; declared says whether a host declares all its procedures.
func (d *Dispatcher) secretsIn(r *harp.Request) (names []string, declared bool) {
	names, declared = d.hosts.catalogues.secretsOf(r.Procedure, r.Args)
	for n, s := range r.Batch.Then {
		more, known := d.hosts.catalogues.secretsOf(s.Procedure, s.Args)
		for _, name := range more {
			names = append(names, stepPrefix(n)+name)
		}
		declared = declared && known
	}
	return names, declared
}

// secretsOf returns which arguments are not to be shown of a schedule that is to be put in the place of an old one, nil if there is
// none. Where no host declares its procedure they are those of the old one.
func (d *Dispatcher) secretsOf(s *harp.Schedule, old *scheduled) []string {
	names, declared := d.secretsIn(&s.Request)
	if !declared && old != nil && old.Schedule.Request.Procedure == s.Request.Procedure {
		names = slices.Concat(names, old.SecretArgs)
		slices.Sort(names)
		return slices.Compact(names)
	}
	return names
}

// checkGivenSecrets refuses arguments that were read back and have, in the place of a secret, what is shown
// of it. Errors: *harp.FieldError.
func checkGivenSecrets(r *harp.Request, secret []string) error {
	if err := checkGivenIn(r.Args, secret); err != nil {
		return err
	}
	for n, s := range r.Batch.Then {
		if err := checkGivenIn(s.Args, secretsIn(secret, n)); err != nil {
			return harp.InStep(n+2, err)
		}
	}
	return nil
}

func checkGivenIn(args harp.Value, secret []string) error {
	if len(secret) == 0 {
		return nil
	}
	got, err := args.Any()
	if err != nil {
		return &harp.FieldError{Field: "args", Message: err.Error()}
	}
	given := map[string]any{}
	switch got := got.(type) {
	case map[string]any:
		given = got
	case []any:
		for i, arg := range got {
			given[strconv.Itoa(i)] = arg
		}
	}
	for _, name := range secret {
		if given[name] == schema.HiddenArg {
			return &harp.FieldError{Field: "args." + name, Message: "stands for a secret; give the secret itself"}
		}
	}
	return nil
}

// secretsOf returns which arguments of a procedure are not to be shown, by what any host declares: declared
// says whether one does.
func (cs *catalogues) secretsOf(procedure string, args harp.Value) (names []string, declared bool) {
	for _, c := range cs.all() {
		if at, found := c.findProcedure(procedure); found {
			names, declared = append(names, cs.secretArgs(c, at, args)...), true
		}
	}
	slices.Sort(names)
	return slices.Compact(names), declared
}

// all returns the catalogues that hosts have.
func (cs *catalogues) all() (all []*catalogue) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, pointer := range cs.known {
		if c := pointer.Value(); c != nil {
			all = append(all, c)
		}
	}
	return all
}
