package manifest_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/manifest"
)

// stepOptions are some options of a step.
func stepOptions(rt *rapid.T) (opts []harp.Option) {
	if rapid.Bool().Draw(rt, "limited") {
		opts = append(opts, harp.MaxExecTime(time.Minute), harp.SilenceTimeout(harp.NoLimit))
	}
	if rapid.Bool().Draw(rt, "retried") {
		opts = append(opts, harp.Retry(harp.RetryPolicy{On: []harp.State{harp.StateLost}, Attempts: 4, Backoff: 90 * time.Second}))
	}
	return opts
}

func TestReadSteps(t *testing.T) {
	steps, err := manifest.ReadSteps("steps.yaml", []byte(`
- procedure: install
  args: {version: "2.0", n: 7}
- procedure: reboot
  retry: {on: [lost], attempts: 2}
- procedure: check
  on: ended
  args: [a, b]
  max_exec_time: 10m
`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := harp.NewChainRequest("*", steps, harp.MaxExecTime(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	then := r.Batch.Then
	if r.Procedure != "install" || r.Args.String() != `{"n":7,"version":"2.0"}` || r.MaxExecTime != time.Hour || len(then) != 2 {
		t.Fatalf("the chain is %+v", r)
	}
	if s := then[0]; s.Procedure != "reboot" || s.Retry.Attempts != 2 || s.MaxExecTime != time.Hour || s.On != "" {
		t.Errorf("the second step is %+v", s)
	}
	if s := then[1]; s.Procedure != "check" || s.On != harp.OnEnded || s.MaxExecTime != 10*time.Minute || s.Args.String() != `["a","b"]` {
		t.Errorf("the third step is %+v", s)
	}
	for text, want := range map[string]string{
		"a: b\n":                                 "must be one list of steps",
		"- procedure: a\n  odd: 1\n":             "steps.yaml:2: [0].odd: is unknown",
		"- a\n":                                  "steps.yaml:1: [0]: must be a map",
		"- procedure: a\n  args: {a: 1, a: 2}\n": "is there twice",
	} {
		if _, err := manifest.ReadSteps("steps.yaml", []byte(text)); !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// A schedule of a chain has its steps in a list, the first one too.
func TestScheduleSteps(t *testing.T) {
	const start = "kind: schedule\nname: s\ncron: '@daily'\ntarget: '*'\n"
	dir := files(t, map[string]string{"f.yaml": start + "steps:\n- procedure: a\n- procedure: b\n  on: failed\n  silence_timeout: 1m\noptions: {silence_timeout: 2m, reboot_wait: 1h}\n"})
	set, err := manifest.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := set.Documents[0].Schedule.Request
	if r.Procedure != "a" || r.SilenceTimeout != 2*time.Minute || r.Steps() != 2 || r.Batch.RebootWait != time.Hour {
		t.Fatalf("the request is %+v", r)
	}
	if s := r.Batch.Then[0]; s.Procedure != "b" || s.On != harp.OnFailed || s.SilenceTimeout != time.Minute {
		t.Errorf("the second step is %+v", s)
	}
	for text, want := range map[string]string{
		"procedure: p\nsteps: [{procedure: a}]\n": ":5: procedure: is that of a step",
		"steps: []\n":                                          ":5: steps: has none",
		"steps: [{procedure: a, on: failed}]\n":                ":5: steps[0].on: is of a step",
		"steps:\n- procedure: a\n- procedure: b\n  on: odd\n":  ":8: steps[1].on: must be",
		"steps:\n- procedure: a\n- procedure: b\n  args: 1\n":  ":8: steps[1].args: must be named",
		"steps:\n- procedure: a\n- args: {}\n":                 ":7: steps[1].procedure: must not be empty",
		"steps:\n- procedure: a\noptions: {then: [a]}\n":       ":7: options.then: is unknown",
		"steps:\n- procedure: a\noptions: {reboot_wait: 1h}\n": ":7: options.reboot_wait: only applies to chains",
		"steps:\n- procedure: a\n  max_exec_time: soon\n":      ":7: steps[0].max_exec_time: must be a duration",
		"steps:\n- procedure: a\n- [b]\n":                      ":7: steps[1]: must be a map",
	} {
		dir := files(t, map[string]string{"f.yaml": start + text})
		if _, err := manifest.Read(dir); !errors.Is(err, harp.ErrInvalid) || !strings.HasPrefix(err.Error(), filepath.Join(dir, "f.yaml")+want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if got := manifest.FieldOf(harp.ScheduleDocument, "request.batch.then"); got != "steps" {
		t.Errorf("the field is %s", got)
	}
}
