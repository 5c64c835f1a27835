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
	r, secret := &status.Request, s.SecretArgs
	if len(secret) == 0 {
		secret = d.hosts.catalogues.secretsOf(r.Procedure, r.Args)
	}
	var err error
	r.Args, err = schema.HideArgs(r.Args, secret)
	return status, err
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

// secretsOf returns which arguments of a procedure are not to be shown, by what any host declares.
func (cs *catalogues) secretsOf(procedure string, args harp.Value) (names []string) {
	for _, c := range cs.all() {
		if at, found := c.findProcedure(procedure); found {
			names = append(names, cs.secretArgs(c, at, args)...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
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
