package dispatcher

import (
	"slices"
	"strconv"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/schema"
)

// shownSchedule is the status of a schedule without secrets: those that were known as such when it was put,
// or else that a host now declares.
func (d *Dispatcher) shownSchedule(s *scheduled, now time.Time) (harp.ScheduleStatus, error) {
	status := s.status(now)
	r := &status.Request
	var err error
	r.Args, err = schema.HideArgs(r.Args, d.knownSecrets(s))
	return status, err
}

// knownSecrets are which arguments of a schedule are not to be shown.
func (d *Dispatcher) knownSecrets(s *scheduled) []string {
	if len(s.SecretArgs) > 0 {
		return s.SecretArgs
	}
	names, _ := d.hosts.catalogues.secretsOf(s.Schedule.Request.Procedure, s.Schedule.Request.Args)
	return names
}

// secretsOf returns which arguments are not to be shown of a schedule that is to be put in the place of an old one, nil if there is
// none. Where no host declares its procedure they are those of the old one.
func (d *Dispatcher) secretsOf(s *harp.Schedule, old *scheduled) []string {
	names, declared := d.hosts.catalogues.secretsOf(s.Request.Procedure, s.Request.Args)
	if !declared && old != nil && old.Schedule.Request.Procedure == s.Request.Procedure {
		return old.SecretArgs
	}
	return names
}

// checkGivenSecrets refuses arguments that were read back and have, in the place of a secret, what is shown
// of it. Errors: *harp.FieldError.
func checkGivenSecrets(args harp.Value, secret []string) error {
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
