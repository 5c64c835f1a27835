package command

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
)

// fired prepares a run of a schedule.
func fired(t *testing.T, c *Command, args any, fire time.Time) (argv, env []string, stdin string) {
	t.Helper()
	v, err := harp.NewValue(args)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := c.Prepare(Call{Job: "j", Args: v, Schedule: "nightly", FireTime: fire})
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range spec.Command.Env {
		if name, _, _ := strings.Cut(set, "="); slices.Contains([]string{"DAY", "HARP_SCHEDULE", "HARP_FIRE_TIME"}, name) {
			env = append(env, set)
		}
	}
	return spec.Command.Argv[1:], env, string(spec.Stdin)
}

// TestFireTime: a command is told which time it is the run of; where there is none, what mentions it
// is left out.
func TestFireTime(t *testing.T) {
	c := one(t, `
x:
  command: [/bin/report, [--day, "{{.fire_time}}"], all]
  env: {DAY: "{{.fire_time}}"}
  stdin: "of {{.fire_time}}"
`)
	fire := time.Date(2027, 3, 28, 3, 0, 0, 0, time.FixedZone("CEST", 7200))
	argv, env, stdin := fired(t, c, nil, fire)
	if !slices.Equal(argv, []string{"--day", "2027-03-28T01:00:00Z", "all"}) || stdin != "of 2027-03-28T01:00:00Z" {
		t.Errorf("argv %q, stdin %q", argv, stdin)
	}
	if want := []string{"DAY=2027-03-28T01:00:00Z", "HARP_FIRE_TIME=2027-03-28T01:00:00Z", "HARP_SCHEDULE=nightly"}; !slices.Equal(env, want) {
		t.Errorf("env %q", env)
	}
	argv, env, stdin = fired(t, c, nil, time.Time{}) // triggered by hand
	if !slices.Equal(argv, []string{"all"}) || !slices.Equal(env, []string{"HARP_SCHEDULE=nightly"}) || stdin != "of " {
		t.Errorf("argv %q, env %q, stdin %q", argv, env, stdin)
	}
}

// TestParameterCalledFireTime: a parameter of that name is the caller's, as before there were schedules.
func TestParameterCalledFireTime(t *testing.T) {
	c := one(t, `
x:
  params: {fire_time: {type: string}}
  command: [/bin/report, "{{.fire_time}}"]
`)
	argv, _, _ := fired(t, c, harp.Args{"fire_time": "noon"}, time.Unix(1, 0))
	if !slices.Equal(argv, []string{"noon"}) {
		t.Errorf("argv %q", argv)
	}
}

// TestFireTimeIsNoArgument: callers cannot say what it is.
func TestFireTimeIsNoArgument(t *testing.T) {
	c := one(t, `
x:
  command: [/bin/report, "{{.fire_time}}"]
`)
	if _, err := prepare(t, c, harp.Args{"fire_time": "noon"}, false); fieldOf(err) != "args.fire_time" {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"{{.fire_time...}}":   "is for a list; fire_time is of type time",
		"{{file .fire_time}}": "is for a secret, a string or json; fire_time is of type time",
	} {
		_, _, err := parse("/etc/harp/f.yaml", []byte("x:\n  command: [/bin/report, \""+text+"\"]\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
