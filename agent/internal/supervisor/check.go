package supervisor

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/proc"
)

const (
	defaultMaxRecord = 64 << 10
	defaultMaxSpool  = 64 << 20
	maxResult        = 16 << 20
	maxValue         = 8 << 20 // of a record
)

// checked is a Spec with its defaults, or a *harp.FieldError.
func (s Spec) checked() (Spec, error) {
	if err := s.check(); err != nil {
		return s, err
	}
	if s.MaxRecord <= 0 {
		s.MaxRecord = defaultMaxRecord
	}
	if s.MaxSpool <= 0 {
		s.MaxSpool = defaultMaxSpool
	}
	if s.Records == "" {
		s.Records = SplitLines
	}
	if s.MaxRecord > maxValue {
		return s, &harp.FieldError{Field: "max_record", Message: fmt.Sprintf("at most %d bytes", maxValue)}
	}
	if s.Result.Max < 0 || s.Result.Max > maxResult {
		return s, &harp.FieldError{Field: "result.max", Message: fmt.Sprintf("at most %d bytes", maxResult)}
	}
	for _, secret := range s.Secrets {
		if err := checkSecretName(secret.Name); err != nil {
			return s, err
		}
	}
	s.Command.Env = s.marked(s.Command.Env)
	return s, nil
}

// marked adds what processes of the attempt are known by, where it is not there.
func (k Key) marked(env []string) []string {
	env = slices.Clone(env)
	for _, mark := range []string{"HARP_JOB=" + k.Job, "HARP_ATTEMPT=" + strconv.FormatInt(k.Attempt, 10)} {
		name, _, _ := strings.Cut(mark, "=")
		if !slices.ContainsFunc(env, func(s string) bool { return strings.HasPrefix(s, name+"=") }) {
			env = append(env, mark)
		}
	}
	return env
}

// check returns a *harp.FieldError if no directory can have the name of the attempt.
func (k Key) check() error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	if k.Job == "" || len(k.Job) > 128 || strings.Trim(k.Job, letters) != "" {
		return &harp.FieldError{Field: "job", Message: "letters, digits, - and _"}
	}
	return nil
}

// name is the name of the attempt's directory.
func (k Key) name() string { return k.Job + "." + strconv.FormatInt(k.Attempt, 10) }

// parseKey is the attempt whose directory has a name.
func parseKey(name string) (Key, bool) {
	job, n, _ := strings.Cut(name, ".")
	attempt, err := strconv.ParseInt(n, 10, 64)
	k := Key{job, attempt}
	return k, err == nil && k.check() == nil && k.name() == name
}

// newCgroup makes a cgroup of its own, where that can be: the supervisor that an agent had
// for the same attempt before it died, and has not begun it, may yet be removing its own. The error is that it
// cannot be just now, for want of files, say: a command with limits would be refused for good without. It is a
// *[proc.ExecError] where there may be no more cgroups: without limits a command goes without then.
func newCgroup(s Spec) (string, error) {
	const length = 8
	dir, err := proc.NewCgroup(s.name() + "." + rand.Text()[:length])
	var many *proc.ExecError
	switch {
	case errors.As(err, &many) && s.Command.Limits == (proc.Limits{}), !proc.IsShort(err):
		return dir, nil
	}
	return "", err
}

// removeCgroup removes a cgroup that nothing was put into.
func removeCgroup(dir string) {
	if dir != "" {
		_ = os.Remove(dir) // at worst an empty directory stays
	}
}
